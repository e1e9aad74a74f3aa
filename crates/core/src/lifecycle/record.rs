//! Record of deletions that outlives the process, so that a restart or a new leader does not release the brake.
//!
//! The record is a JSON object that maps deletion times, in seconds since 1970, to the UIDs of the deleted Nodes. A UID takes 39
//! bytes: the 5,100 deletions that 15,000 Nodes allow within one window fit into the 256 KiB limit of Kubernetes for the
//! annotations of an object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::memory::{DeletionMark, Memory};
use super::{Moment, Policy};

/// UIDs by time of deletion.
type Entries = BTreeMap<i64, Vec<String>>;

impl Memory {
    /// Returns the record of the deletions of this provider's Nodes.
    pub fn deletion_record(&self, provider: &str, now: Moment) -> String {
        let mut entries = Entries::new();
        for (uid, mark) in self.deletions.iter().filter(|(_, mark)| &*mark.provider == provider) {
            entries.entry(mark.second(now)).or_default().push(uid.clone());
        }
        entries.values_mut().for_each(|uids| uids.sort_unstable());
        serde_json::to_string(&entries).unwrap_or_default()
    }

    /// Adds the deletions of a record that an earlier process or another leader has written. Deletions that this process knows
    /// itself are kept.
    pub fn restore_deletions(
        &mut self,
        provider: &Arc<str>,
        record: &str,
        policy: &Policy,
        now: Moment,
    ) -> Result<(), serde_json::Error> {
        for (at, uids) in serde_json::from_str::<Entries>(record)? {
            // A time in the future comes from a clock that is ahead: the deletion counts from now.
            let age = Duration::from_secs(u64::try_from(now.wall.as_second().saturating_sub(at)).unwrap_or_default());
            if age >= policy.brake_window {
                continue;
            }
            let when = now.instant.checked_sub(age).unwrap_or(now.instant);
            for uid in uids {
                self.deletions.entry(uid).or_insert_with(|| DeletionMark { provider: provider.clone(), when });
            }
        }
        Ok(())
    }
}

impl DeletionMark {
    /// Returns the time of the deletion in seconds, rounded up, so that a restored deletion does not expire early.
    fn second(&self, now: Moment) -> i64 {
        let age = now.instant.saturating_duration_since(self.when).as_secs();
        now.wall.as_second().saturating_sub_unsigned(age)
    }
}
