//! Fargate Nodes: each is a Pod with a network interface, which is found by its private address.
//!
//! A Fargate Node must bring its provider ID: nothing derives it from the name of the Node.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::{Error, ErrorKind, Result};

use super::FIND;
use super::id::FARGATE;
use super::lookup::{Answer, FILTER_VALUES, in_chunks};
use crate::Aws;
use crate::api::Filter;
use crate::api::ec2::NetworkInterface;

/// Filter values beside the addresses: the status and the VPC.
const OTHER_VALUES: usize = 2;

impl Aws {
    /// Looks up the attached network interfaces of Fargate Nodes.
    pub(super) async fn fargate_pods(&self, ids: BTreeSet<String>) -> Vec<(String, Answer<NetworkInterface>)> {
        let mut answers = Vec::with_capacity(ids.len());
        for chunk in in_chunks(ids, FILTER_VALUES - OTHER_VALUES) {
            let found = self.attached_interfaces(&chunk).await;
            answers.extend(by_address(chunk, &found));
        }
        answers
    }

    async fn attached_interfaces(&self, ids: &[String]) -> Result<Vec<NetworkInterface>> {
        let vpc = &self.identity()?.vpc_id;
        let filters = [
            Filter::new("attachment.status", ["attached"]),
            Filter::new("vpc-id", [vpc]),
            Filter::new("private-ip-address", ids.iter().map(|id| address_of(id))),
        ];
        self.ec2.network_interfaces(&filters).await
    }
}

/// Returns the private address in the ID of a Fargate Node: `fargate-10.0.0.1`, `fargate-ip-10-0-0-1.ec2.internal`.
fn address_of(id: &str) -> String {
    let address = id.strip_prefix(FARGATE).unwrap_or(id);
    match address.strip_prefix("ip-") {
        Some(name) => name.split('.').next().unwrap_or_default().replace('-', "."),
        None => address.to_owned(),
    }
}

fn by_address(ids: Vec<String>, found: &Result<Vec<NetworkInterface>>) -> Vec<(String, Answer<NetworkInterface>)> {
    let found = match found {
        Ok(found) => found,
        Err(error) => return ids.into_iter().map(|id| (id, Err(error.clone()))).collect(),
    };
    let mut by_address: BTreeMap<&str, Vec<&NetworkInterface>> = BTreeMap::new();
    found.iter().for_each(|one| by_address.entry(one.private_ip_address.as_str()).or_default().push(one));
    let answer = |id: String| {
        let answer = match by_address.get(address_of(&id).as_str()).map_or(&[][..], Vec::as_slice) {
            [] => Ok(None),
            [one] => Ok(Some((*one).clone())),
            _ => Err(Error::new(ErrorKind::Unexpected, FIND, format!("multiple interfaces found with same id {id:?}"))),
        };
        (id, answer)
    };
    ids.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_contains_the_address() {
        for (id, expected) in [
            ("fargate-192.168.164.88", "192.168.164.88"),
            ("fargate-ip-192-168-1-1.ec2.internal", "192.168.1.1"),
            ("fargate-ip-192-168-1-1", "192.168.1.1"),
            ("fargate-", ""),
        ] {
            assert_eq!(address_of(id), expected, "{id}");
        }
    }

    #[test]
    fn an_interface_belongs_to_the_node_with_its_address() {
        let interface =
            |address: &str| NetworkInterface { private_ip_address: address.to_owned(), ..NetworkInterface::default() };
        let found = Ok(["10.0.0.1", "10.0.0.2", "10.0.0.2"].map(interface).to_vec());
        let ids = ["fargate-10.0.0.1", "fargate-ip-10-0-0-2.x", "fargate-10.0.0.3"].map(str::to_owned).to_vec();
        let answers = by_address(ids, &found);
        assert_eq!(answers[0].1.as_ref().unwrap(), &Some(interface("10.0.0.1")));
        let error = answers[1].1.as_ref().unwrap_err();
        assert_eq!(error.message(), "multiple interfaces found with same id \"fargate-ip-10-0-0-2.x\"");
        assert_eq!(answers[2].1.as_ref().unwrap(), &None);
    }
}
