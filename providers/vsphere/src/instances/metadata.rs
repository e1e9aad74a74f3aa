//! Addresses in the metadata of cloud-init, which a machine can have in its settings.
//!
//! The metadata is YAML in base64. Its key `network` holds the configuration of the network: inline, or again in base64, with or without
//! gzip, as the key `network.encoding` says.

use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Maximum size of the decompressed configuration.
const MAX_NETWORK: u64 = 1 << 20;

#[derive(Deserialize, Default)]
struct Metadata {
    network: Option<NetworkField>,
    #[serde(rename = "network.encoding")]
    encoding: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NetworkField {
    Text(String),
    Inline(Network),
}

#[derive(Deserialize, Default)]
struct Network {
    #[serde(default)]
    ethernets: Ethernets,
}

/// Interfaces in the order of the document.
#[derive(Default)]
struct Ethernets(Vec<Ethernet>);

#[derive(Deserialize)]
struct Ethernet {
    /// Texts, or mappings with options of the address.
    #[serde(default)]
    addresses: Vec<Value>,
}

/// Returns the addresses of all interfaces in the metadata, in the order of the document. Other encodings than base64 are ignored.
// upstream: the order of several interfaces is random.
pub(crate) fn addresses(metadata: &str, encoding: &str) -> Result<Vec<IpAddr>, String> {
    if encoding != "base64" {
        return Ok(Vec::new());
    }
    let metadata: Metadata = yaml(&decode(metadata)?)?;
    let network = match (metadata.network, metadata.encoding.as_deref()) {
        (None, _) => return Ok(Vec::new()),
        (Some(NetworkField::Text(text)), Some("base64" | "b64")) => yaml(&decode(&text)?)?,
        (Some(NetworkField::Text(text)), Some("gzip+base64" | "gz+b64")) => yaml(&gunzip(&decode(&text)?)?)?,
        (Some(NetworkField::Text(_)), _) => {
            return Err("network is text, and network.encoding names no encoding".to_owned());
        }
        (Some(NetworkField::Inline(network)), _) => network,
    };
    let addresses = network.ethernets.0.iter().flat_map(|nic| &nic.addresses);
    Ok(addresses.filter_map(|address| parse(address.as_str()?)).collect())
}

fn parse(address: &str) -> Option<IpAddr> {
    address.split('/').next()?.trim().parse().ok()
}

fn decode(text: &str) -> Result<Vec<u8>, String> {
    let compact: String = text.split_whitespace().collect();
    STANDARD.decode(compact).map_err(|error| format!("invalid base64: {error}"))
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = GzDecoder::new(bytes).take(MAX_NETWORK).read_to_end(&mut text);
    read.map_err(|error| format!("invalid gzip: {error}"))?;
    Ok(text)
}

/// Parses YAML, which must be a mapping of this form; an empty document has none of its fields.
fn yaml<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    if text.trim().is_empty() {
        return Ok(T::default());
    }
    // The error of the parser could quote secrets of the document.
    serde_saphyr::from_str(text).map_err(|_| "cannot unmarshal the YAML: another form is expected".to_owned())
}

impl<'de> Deserialize<'de> for Ethernets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ethernets, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Ethernets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("interfaces by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ethernets, A::Error> {
                let mut nics = Vec::new();
                while map.next_key::<IgnoredAny>()?.is_some() {
                    nics.push(map.next_value()?);
                }
                Ok(Ethernets(nics))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const NETWORK: &str = "ethernets:\n  zz:\n    addresses: [192.168.1.12/24, 'fd01:1:2:2919:abba:0000:0000:401/128']\n  aa:\n    dhcp4: true\n  bb:\n    addresses: [10.0.0.1]\n";

    fn found(metadata: &str) -> Result<Vec<String>, String> {
        let found = addresses(&STANDARD.encode(metadata), "base64")?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    fn expected() -> Vec<String> {
        ["192.168.1.12", "fd01:1:2:2919:abba::401", "10.0.0.1"].map(str::to_owned).to_vec()
    }

    /// VS-85
    #[test]
    fn inline_addresses_are_found_in_the_order_of_the_document() {
        let inline = format!("instance-id: x\nnetwork:\n  version: 2\n  {}", NETWORK.trim_end().replace('\n', "\n  "));
        assert_eq!(found(&inline).unwrap(), expected());
    }

    /// VS-85
    #[test]
    fn an_encoded_network_is_decoded() {
        let plain = STANDARD.encode(NETWORK);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(NETWORK.as_bytes()).unwrap();
        let gzip = STANDARD.encode(gzip.finish().unwrap());
        for (encoding, network) in [("base64", &plain), ("b64", &plain), ("gzip+base64", &gzip), ("gz+b64", &gzip)] {
            let metadata = format!("network: {network}\nnetwork.encoding: {encoding}\n");
            assert_eq!(found(&metadata).unwrap(), expected(), "{encoding}");
        }
    }

    /// VS-86
    #[test]
    fn metadata_without_addresses_has_none() {
        for metadata in ["", "instance-id: x", "network:\n  ethernets:\n    a: {dhcp4: true}", "network: {}"] {
            assert_eq!(found(metadata).unwrap(), Vec::<String>::new(), "{metadata}");
        }
        assert_eq!(addresses("%%%", "gzip+base64"), Ok(Vec::new()), "another encoding is ignored");
        assert_eq!(addresses("%%%", ""), Ok(Vec::new()));
    }

    /// VS-87
    #[test]
    fn unreadable_metadata_is_an_error() {
        assert!(addresses("%%%", "base64").unwrap_err().contains("base64"));
        for (metadata, reason) in [
            ("plain text", "cannot unmarshal"),
            ("network: text", "network.encoding"),
            ("network: '%%'\nnetwork.encoding: b64", "base64"),
            ("network: aGVsbG8=\nnetwork.encoding: gz+b64", "gzip"),
            ("network: 5", "cannot unmarshal"),
            ("a: [", "YAML"),
        ] {
            let error = found(metadata).unwrap_err();
            assert!(error.contains(reason), "{metadata}: {error}");
        }
    }
}
