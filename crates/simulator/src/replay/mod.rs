//! Recordings: responses of a real cloud, compared field by field with those of its simulator.
//!
//! A test replays the recorded requests to the simulator, each with [`Names::ours`] applied, and passes both responses to
//! [`Rules::compare`]. IDs and addresses differ in every cloud: where both responses have one at the same place, the pair is
//! learned and applied from then on.

mod comparing;
mod names;

pub use comparing::Rules;
pub use names::Names;
