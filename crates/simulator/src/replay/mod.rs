//! Recordings: answers of a real cloud, compared field by field with those of its simulator.
//!
//! A test plays the recorded requests to the simulator, each with [`Names::ours`] applied, and passes both answers to
//! [`Rules::compare`]. IDs and addresses differ in every cloud; where both answers have one at the same place, the pair is
//! learned and applied from then on.

mod comparing;
mod names;

pub use comparing::Rules;
pub use names::Names;
