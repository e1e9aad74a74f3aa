//! Subnets of a new load balancer, with the addresses that it gets there.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::{Annotation, Text};

use super::super::annotations::{self as keys, Values};
use crate::api::ec2::Subnet;
use crate::api::elbv2::SubnetMapping;

/// Assigns the annotated addresses to the subnets, by their place in the list.
pub(super) fn subnet_mappings(values: Values<'_>, subnets: &[Subnet]) -> Result<Vec<SubnetMapping>> {
    let allocations = per_subnet(values, &keys::EIP_ALLOCATIONS, "EIP AllocationIDs", subnets)?;
    let addresses = per_subnet(values, &keys::PRIVATE_IPV4_ADDRESSES, "Private IPv4Addresses", subnets)?;
    let mapping = |(at, subnet): (usize, &Subnet)| SubnetMapping {
        subnet_id: subnet.id.clone(),
        allocation_id: place(&allocations, at),
        private_ipv4_address: place(&addresses, at),
    };
    Ok(subnets.iter().enumerate().map(mapping).collect())
}

fn place(items: &Option<Vec<&str>>, at: usize) -> Option<String> {
    items.as_ref()?.get(at).map(|item| (*item).to_owned())
}

/// Returns the items of an annotation, which are as many as the subnets.
// upstream: blanks are not trimmed, and an empty text is one empty item.
fn per_subnet<'a>(
    values: Values<'a>,
    annotation: &Annotation<Text>,
    what: &str,
    subnets: &[Subnet],
) -> Result<Option<Vec<&'a str>>> {
    let Some(text) = values.text(annotation) else { return Ok(None) };
    let items: Vec<_> = text.split(',').collect();
    if items.len() == subnets.len() {
        return Ok(Some(items));
    }
    let (count, expected) = (items.len(), subnets.len());
    let message = format!("Must have same number of {what} ({count}) and SubnetIDs ({expected})");
    Err(Error::new(ErrorKind::InvalidConfig, "error creating load balancer", message))
}

#[cfg(test)]
mod tests {
    use super::super::tests::annotated;
    use super::*;

    fn subnets(ids: &[&str]) -> Vec<Subnet> {
        ids.iter().map(|id| Subnet { id: (*id).to_owned(), ..Subnet::default() }).collect()
    }

    #[test]
    fn addresses_go_to_the_subnet_at_their_place() {
        let pairs = [(keys::EIP_ALLOCATIONS.key, "eip-1, eip-2"), (keys::PRIVATE_IPV4_ADDRESSES.key, "10.0.0.1,")];
        let annotations = annotated(&pairs);
        let mapping = |subnet: &str, eip: &str, address: &str| SubnetMapping {
            subnet_id: subnet.to_owned(),
            allocation_id: Some(eip.to_owned()),
            private_ipv4_address: Some(address.to_owned()),
        };
        let expected = [mapping("s-1", "eip-1", "10.0.0.1"), mapping("s-2", " eip-2", "")];
        assert_eq!(subnet_mappings(Values(&annotations), &subnets(&["s-1", "s-2"])).unwrap(), expected);
        let none = annotated(&[]);
        let plain = SubnetMapping { subnet_id: "s-1".to_owned(), ..SubnetMapping::default() };
        assert_eq!(subnet_mappings(Values(&none), &subnets(&["s-1"])).unwrap(), [plain]);
    }

    #[test]
    fn their_number_must_be_that_of_the_subnets() {
        for (pair, expected) in [
            ((keys::EIP_ALLOCATIONS.key, "a"), "Must have same number of EIP AllocationIDs (1) and SubnetIDs (2)"),
            ((keys::EIP_ALLOCATIONS.key, ""), "Must have same number of EIP AllocationIDs (1) and SubnetIDs (2)"),
            (
                (keys::PRIVATE_IPV4_ADDRESSES.key, "a,b,c"),
                "Must have same number of Private IPv4Addresses (3) and SubnetIDs (2)",
            ),
        ] {
            let annotations = annotated(&[pair]);
            let error = subnet_mappings(Values(&annotations), &subnets(&["s-1", "s-2"])).unwrap_err();
            assert_eq!(error.to_string(), format!("error creating load balancer: {expected}"));
        }
    }
}
