//! The decisions of the case catalogue, by their number: what was seen goes in, steps come out.

mod behind;
mod listeners;
mod order;
mod ownership;
