//! Start, health check and `bowline check`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bowline_cloud::{CheckResult, Facts, Result};

use crate::Cloudlycke;
use crate::pool::Report;
use crate::provider::Machines;

impl Cloudlycke {
    /// Reads all machines once. The demonstration claims a cluster ID, and so does this provider: agents mark with it what they hold.
    // upstream: HasClusterID is true.
    pub(crate) async fn start_up(&self) -> Result<Facts> {
        let mut details = BTreeMap::from([("backend", self.config.backend.name().to_owned())]);
        if let Machines::Pool(pool) = &self.machines {
            pool.check().await?;
            details.extend(pool.backend().about().await?);
        }
        let (region, cluster_id) = (Some(self.config.rules.location.clone()), Some(self.cluster.to_string()));
        Ok(Facts { region, cluster_id, details, ..Facts::default() })
    }

    /// Reads all machines, without their details.
    pub(crate) async fn read_machines(&self) -> Result<usize> {
        match &self.machines {
            Machines::Demo(demo) => Ok(demo.list().len()),
            Machines::Pool(pool) => pool.check().await,
        }
    }

    /// Checks the source of the machines, each machine, and the agents.
    pub(crate) async fn diagnose_all(&self) -> Vec<CheckResult> {
        let mut results = self.diagnose_machines().await;
        if let Some(agents) = &self.agents {
            results.extend(agents.diagnose(&self.addresses().await).await);
        }
        results
    }

    /// Returns names and addresses of the machines; none if they cannot be read.
    async fn addresses(&self) -> Vec<(String, IpAddr)> {
        let states = match &self.machines {
            Machines::Demo(demo) => demo.list(),
            Machines::Pool(pool) => pool.list().await.map(|(states, _)| states).unwrap_or_default(),
        };
        let machines = states.iter().filter_map(|state| state.instance());
        let addresses = machines.flat_map(|machine| machine.addresses.iter().map(|address| (&machine.name, address)));
        addresses.filter_map(|(name, address)| Some((name.clone(), address.address.parse().ok()?))).collect()
    }

    async fn diagnose_machines(&self) -> Vec<CheckResult> {
        let Machines::Pool(pool) = &self.machines else {
            let confirmation = "the fixed table of the demonstration; set backend to read real machines";
            return vec![CheckResult::new("backend static", Ok(confirmation.to_owned()))];
        };
        let subject = format!("backend {}", self.config.backend.name());
        let about = pool.backend().about().await.map(|facts| {
            let facts: Vec<_> = facts.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            facts.join(", ")
        });
        let machines = match pool.report().await {
            Ok(machines) => machines,
            Err(error) => return vec![CheckResult::new(subject, about), CheckResult::new("machines", Err(error))],
        };
        let count = format!("{} machines are listed", machines.len());
        let machine = |Report { name, outcome }| CheckResult::new(format!("machine {name}"), outcome);
        let first = [CheckResult::new(subject, about), CheckResult::new("machines", Ok(count))];
        first.into_iter().chain(machines.into_iter().map(machine)).collect()
    }
}
