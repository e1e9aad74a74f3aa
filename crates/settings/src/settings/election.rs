//! Resolves the leader election flags (LE-2, LE-8, MIG-1 to MIG-6).

use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::manager::ManagerOptions;
use bowline_kube::LeaseOptions;

use super::valid;
use crate::cli::{ElectionArgs, LEASES};
use crate::feature_gates::FeatureGates;
use crate::migration::Migration;

/// Startup message of a dry run with leader election.
const NO_LEASE_WARNING: &str = "dry run: no Lease is acquired; this process runs beside the current leader";

/// Leader election options.
#[derive(Debug, Clone)]
pub struct Election {
    /// Lease that all controllers need.
    pub lease: LeaseOptions,
    /// Leader migration, for the controllers that need a second Lease.
    pub migration: Option<Migration>,
    /// Whether Leases are released at a clean shutdown.
    pub releases: bool,
}

impl Election {
    /// Resolves the options; `None` if leader election is disabled (LE-8). Disables controllers of another manager in `manager`.
    pub(crate) fn resolve(
        args: &ElectionArgs,
        gates: &FeatureGates,
        manager: &mut ManagerOptions,
        warnings: &mut Vec<String>,
        errors: &mut ConfigErrors,
    ) -> Option<Election> {
        let is_on = valid(&args.leader_elect, errors).unwrap_or(false);
        let lease = lease(args, is_on, errors);
        // upstream: reads the file even if leader election is disabled.
        let migration = migration(args, errors);
        if !is_on {
            return None;
        }
        if let Some(migration) = &migration {
            migration.check(&lease.name, errors);
            warnings.extend(migration.restrict(manager));
        }
        if manager.dry_run {
            // Holding the Lease would block the real manager, and would be a write to the cluster.
            warnings.push(NO_LEASE_WARNING.to_owned());
            return None;
        }
        Some(Election { lease, migration, releases: gates.releases_lease() })
    }

    /// Options of the second Lease: the same except the name (MIG-4).
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
        lease_duration: valid(&args.leader_elect_lease_duration, errors).unwrap_or(defaults.lease_duration),
        renew_deadline: valid(&args.leader_elect_renew_deadline, errors).unwrap_or(defaults.renew_deadline),
        retry_period: valid(&args.leader_elect_retry_period, errors).unwrap_or(defaults.retry_period),
    };
    if is_on {
        check(args, &lease, errors.iter().count() > before, errors);
    }
    lease
}

fn check(args: &ElectionArgs, lease: &LeaseOptions, times_are_wrong: bool, errors: &mut ConfigErrors) {
    // upstream: this message, and those of `LeaseOptions::check`.
    if args.leader_elect_resource_lock != LEASES {
        errors.push(
            ConfigError::new("resourceLock value must be \"leases\"").hint("remove --leader-elect-resource-lock"),
        );
    }
    let names = [("leader-elect-resource-name", &lease.name), ("leader-elect-resource-namespace", &lease.namespace)];
    for (flag, _) in names.iter().filter(|(_, name)| !is_name(name)) {
        let message = "invalid object name; use lowercase letters, digits, '-' and '.'";
        errors.push(ConfigError::flag(flag, message));
    }
    if let (Err(error), false) = (lease.check(), times_are_wrong) {
        let hint = "see --leader-elect-lease-duration, --leader-elect-renew-deadline and --leader-elect-retry-period";
        errors.push(ConfigError::new(error.to_string()).hint(hint));
    }
}

/// Whether the API server would accept the object name.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= 253 && name.chars().all(plain)
}

fn migration(args: &ElectionArgs, errors: &mut ConfigErrors) -> Option<Migration> {
    if !valid(&args.enable_leader_migration, errors)? {
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
    fn le8_leader_election_is_enabled_by_default() {
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
    fn a_dry_run_acquires_no_lease() {
        let settings = resolve(&["--dry-run"]).unwrap();
        assert!(settings.election.is_none() && settings.warnings.iter().any(|warning| warning == NO_LEASE_WARNING));
        let settings = resolve(&["--dry-run", "--leader-elect=false"]).unwrap();
        assert!(!settings.warnings.iter().any(|warning| warning == NO_LEASE_WARNING));
    }

    #[test]
    fn le7_a_lease_is_released_unless_the_gate_is_off() {
        let releases = |flags: &[&str]| resolve(flags).unwrap().election.unwrap().releases;
        assert!(releases(&[]));
        assert!(!releases(&["--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false"]));
    }

    #[test]
    fn leader_election_flags_set_their_options() {
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
    fn invalid_values_have_the_error_messages_of_upstream() {
        let cases = [
            ("C12", "--leader-elect-resource-lock=configmapsleases", "resourceLock value must be \"leases\""),
            ("LE-2", "--leader-elect-lease-duration=5s", "leaseDuration must be greater than renewDeadline"),
            ("LE-2", "--leader-elect-lease-duration=0", "leaseDuration must be greater than zero"),
            ("LE-2", "--leader-elect-renew-deadline=0s", "renewDeadline must be greater than zero"),
            ("LE-2", "--leader-elect-retry-period=9s", "renewDeadline must be greater than retryPeriod*JitterFactor"),
            ("LE-2", "--leader-elect-retry-period=0s", "retryPeriod must be greater than zero"),
            ("", "--leader-elect-retry-period=soon", "--leader-elect-retry-period: invalid value \"soon\""),
            ("", "--leader-elect-resource-name=", "--leader-elect-resource-name: invalid object name"),
            ("", "--leader-elect-resource-namespace=A", "--leader-elect-resource-namespace: invalid object name"),
        ];
        for (case, flag, expected) in cases {
            let errors = resolve(&[flag]).unwrap_err();
            assert_eq!(errors.len(), 1, "{case} {flag}: {errors:?}");
            assert!(errors[0].contains(expected), "{case} {flag}: {errors:?}");
        }
    }
}
