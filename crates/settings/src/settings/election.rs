//! Whether and how this process stands for election (LE-2, LE-8, MIG-1 to MIG-6).

use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::manager::ManagerOptions;
use bowline_kube::LeaseOptions;

use super::taken;
use crate::cli::{ElectionArgs, LEASES};
use crate::feature_gates::FeatureGates;
use crate::migration::Migration;

/// What is said about a dry run that could have had a lease.
const NO_LEASE_REMARK: &str = "dry run: no lease is taken, so this runs beside the manager that leads";

/// How this process stands for election.
#[derive(Debug, Clone)]
pub struct Election {
    /// What all controllers need.
    pub lease: LeaseOptions,
    /// What some of them need beside it.
    pub migration: Option<Migration>,
    /// Leases are given back when the process ends well.
    pub releases: bool,
}

impl Election {
    /// `None` if whoever starts leads (LE-8). Controllers that belong to another manager are switched off in `manager`.
    pub(crate) fn resolve(
        args: &ElectionArgs,
        gates: &FeatureGates,
        manager: &mut ManagerOptions,
        remarks: &mut Vec<String>,
        errors: &mut ConfigErrors,
    ) -> Option<Election> {
        let is_on = taken(&args.leader_elect, errors).unwrap_or(false);
        let lease = lease(args, is_on, errors);
        // upstream: reads the file even if there is no election to use it in.
        let migration = migration(args, errors);
        if !is_on {
            return None;
        }
        if let Some(migration) = &migration {
            migration.check(&lease.name, errors);
            remarks.extend(migration.restrict(manager));
        }
        if manager.dry_run {
            // It would keep a manager that works from working, and write to the cluster.
            remarks.push(NO_LEASE_REMARK.to_owned());
            return None;
        }
        Some(Election { lease, migration, releases: gates.releases_lease() })
    }

    /// MIG-4: all but the name is the same.
    pub fn second_lease(&self, migration: &Migration) -> LeaseOptions {
        LeaseOptions { name: migration.lease.clone(), ..self.lease.clone() }
    }
}

fn lease(args: &ElectionArgs, is_on: bool, errors: &mut ConfigErrors) -> LeaseOptions {
    let defaults = LeaseOptions::default();
    let before = errors.iter().count();
    let lease = LeaseOptions {
        namespace: args.leader_elect_resource_namespace.clone(),
        name: args.leader_elect_resource_name.clone(),
        lease_duration: taken(&args.leader_elect_lease_duration, errors).unwrap_or(defaults.lease_duration),
        renew_deadline: taken(&args.leader_elect_renew_deadline, errors).unwrap_or(defaults.renew_deadline),
        retry_period: taken(&args.leader_elect_retry_period, errors).unwrap_or(defaults.retry_period),
    };
    if is_on {
        check(args, &lease, errors.iter().count() > before, errors);
    }
    lease
}

fn check(args: &ElectionArgs, lease: &LeaseOptions, times_are_wrong: bool, errors: &mut ConfigErrors) {
    // The words of the Go managers, here and in the errors of the lease.
    if args.leader_elect_resource_lock != LEASES {
        errors.push(
            ConfigError::new("resourceLock value must be \"leases\"").hint("leave --leader-elect-resource-lock out"),
        );
    }
    let names = [("leader-elect-resource-name", &lease.name), ("leader-elect-resource-namespace", &lease.namespace)];
    for (flag, _) in names.iter().filter(|(_, name)| !is_name(name)) {
        let message = "it is no name of an object: small letters, digits, dashes and dots are";
        errors.push(ConfigError::flag(flag, message));
    }
    if let (Err(error), false) = (lease.check(), times_are_wrong) {
        let hint = "see --leader-elect-lease-duration, --leader-elect-renew-deadline and --leader-elect-retry-period";
        errors.push(ConfigError::new(error.to_string()).hint(hint));
    }
}

/// What the API server would refuse is told before it is asked.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= 253 && name.chars().all(plain)
}

fn migration(args: &ElectionArgs, errors: &mut ConfigErrors) -> Option<Migration> {
    if !taken(&args.enable_leader_migration, errors)? {
        return None;
    }
    let path = args.leader_migration_config.as_deref().filter(|path| !path.as_os_str().is_empty());
    let Some(path) = path else { return Some(args.migration.clone().unwrap_or_default()) };
    Migration::read(path).map_err(|found| errors.extend(found)).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;
    use crate::settings::Settings;

    fn resolve(flags: &[&str]) -> Result<Settings, Vec<String>> {
        let argv = ["bowline", "--cloud-provider=local"].iter().chain(flags);
        let mut errors = ConfigErrors::new();
        let settings = Settings::resolve(&crate::cli::Cli::parse_from(argv).manager, &mut errors);
        if errors.is_empty() { Ok(settings) } else { Err(errors.iter().map(ToString::to_string).collect()) }
    }

    #[test]
    fn le8_there_is_an_election_unless_nobody_wants_one() {
        let election = resolve(&[]).unwrap().election.unwrap();
        assert_eq!(election.lease, LeaseOptions::default());
        assert!(election.migration.is_none());
        assert!(resolve(&["--leader-elect=false"]).unwrap().election.is_none());
        let gate = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false";
        assert!(election.releases && !resolve(&[gate]).unwrap().election.unwrap().releases);
        let ignored = ["--leader-elect=false", "--leader-elect-resource-lock=x", "--leader-elect-retry-period=1h"];
        assert!(resolve(&ignored).unwrap().election.is_none());
    }

    #[test]
    fn a_dry_run_takes_no_lease() {
        let settings = resolve(&["--dry-run"]).unwrap();
        assert!(settings.election.is_none() && settings.remarks.iter().any(|remark| remark == NO_LEASE_REMARK));
        let settings = resolve(&["--dry-run", "--leader-elect=false"]).unwrap();
        assert!(!settings.remarks.iter().any(|remark| remark == NO_LEASE_REMARK));
    }

    #[test]
    fn le7_a_lease_is_given_back_unless_the_gate_says_otherwise() {
        let releases = |flags: &[&str]| resolve(flags).unwrap().election.unwrap().releases;
        assert!(releases(&[]));
        assert!(!releases(&["--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false"]));
    }

    #[test]
    fn every_flag_about_the_election_reaches_its_place() {
        let flags = [
            "--leader-elect-lease-duration=30s",
            "--leader-elect-renew-deadline=20s",
            "--leader-elect-retry-period=1500ms",
            "--leader-elect-resource-name=mine",
            "--leader-elect-resource-namespace=harbour",
            "--enable-leader-migration",
        ];
        let election = resolve(&flags).unwrap().election.unwrap();
        let expected = LeaseOptions {
            namespace: "harbour".into(),
            name: "mine".into(),
            lease_duration: Duration::from_secs(30),
            renew_deadline: Duration::from_secs(20),
            retry_period: Duration::from_millis(1500),
        };
        assert_eq!((election.lease, election.migration.is_some()), (expected, true));
    }

    #[test]
    fn what_cannot_work_is_told_in_the_words_that_people_look_for() {
        let cases = [
            ("C12", "--leader-elect-resource-lock=configmapsleases", "resourceLock value must be \"leases\""),
            ("LE-2", "--leader-elect-lease-duration=5s", "leaseDuration must be greater than renewDeadline"),
            ("LE-2", "--leader-elect-lease-duration=0", "leaseDuration must be greater than zero"),
            ("LE-2", "--leader-elect-renew-deadline=0s", "renewDeadline must be greater than zero"),
            ("LE-2", "--leader-elect-retry-period=9s", "renewDeadline must be greater than retryPeriod*JitterFactor"),
            ("LE-2", "--leader-elect-retry-period=0s", "retryPeriod must be greater than zero"),
            ("", "--leader-elect-retry-period=soon", "--leader-elect-retry-period: \"soon\" is not right"),
            ("", "--leader-elect-resource-name=", "--leader-elect-resource-name: it is no name of an object"),
            ("", "--leader-elect-resource-namespace=A", "--leader-elect-resource-namespace: it is no name"),
        ];
        for (case, flag, says) in cases {
            let errors = resolve(&[flag]).unwrap_err();
            assert_eq!(errors.len(), 1, "{case} {flag}: {errors:?}");
            assert!(errors[0].contains(says), "{case} {flag}: {errors:?}");
        }
    }
}
