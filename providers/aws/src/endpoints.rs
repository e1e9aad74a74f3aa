//! Endpoints and signing regions of the APIs.
//!
//! ```text
//!  section of the file ──► variable of the service ──► AWS_ENDPOINT_URL ──► SERVICE.REGION.SUFFIX of the partition
//! ```

use std::sync::{Arc, OnceLock};

use bowline_cloud::{Error, ErrorKind, Result};

use crate::config::{Config, EndpointVariables, ServiceOverride};

/// An API of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApiName {
    Ec2,
    Elb,
    ElbV2,
    Sts,
    Metadata,
}

/// Where an API is, and what its requests are signed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) signing_region: String,
    pub(crate) signing_name: String,
}

/// Endpoints of the region. Clones share the region, which is known after the start. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    config: Arc<Config>,
    region: Arc<OnceLock<String>>,
}

impl ApiName {
    /// Returns the host name, which is also the name in signatures and in IAM actions.
    pub(crate) fn signing_name(self) -> &'static str {
        match self {
            ApiName::Ec2 => "ec2",
            ApiName::Elb | ApiName::ElbV2 => "elasticloadbalancing",
            ApiName::Sts => "sts",
            ApiName::Metadata => "ec2metadata",
        }
    }

    /// Returns the service identifier of the AWS SDKs, as in metrics and in overrides.
    pub(crate) fn identifier(self) -> &'static str {
        match self {
            ApiName::Ec2 => "EC2",
            ApiName::Elb => "Elastic Load Balancing",
            ApiName::ElbV2 => "Elastic Load Balancing v2",
            ApiName::Sts => "STS",
            ApiName::Metadata => "ec2imds",
        }
    }

    /// Returns whether an override with this service is for the API: by its identifier, or by the name that older releases use.
    fn is_overridden_by(self, service: &str) -> bool {
        // upstream: STS has no override.
        let own = service.eq_ignore_ascii_case(self.identifier());
        self != ApiName::Sts && (own || service.eq_ignore_ascii_case(self.signing_name()))
    }

    fn variable(self, variables: &EndpointVariables) -> &str {
        match self {
            ApiName::Ec2 => &variables.ec2,
            ApiName::Elb => &variables.elb,
            ApiName::ElbV2 => &variables.elbv2,
            ApiName::Sts => &variables.sts,
            ApiName::Metadata => &variables.metadata,
        }
    }
}

impl Endpoints {
    /// Creates the endpoints. The region is known if the configuration has one.
    pub(crate) fn new(config: Arc<Config>) -> Endpoints {
        let endpoints = Endpoints { config, region: Arc::default() };
        if !endpoints.config.region.is_empty() {
            endpoints.set_region(&endpoints.config.region);
        }
        endpoints
    }

    /// Sets the region. It does not change until the provider is rebuilt.
    pub(crate) fn set_region(&self, region: &str) {
        let _ = self.region.set(region.to_owned());
    }

    /// Returns the region; an error before the start.
    pub(crate) fn region(&self) -> Result<&str> {
        let missing = || Error::new(ErrorKind::Unavailable, "find the endpoint", "the region is not known yet");
        self.region.get().map(String::as_str).ok_or_else(missing)
    }

    /// Returns the endpoint of an API; an error before the start if the region is needed for it.
    pub(crate) fn of(&self, api: ApiName) -> Result<Endpoint> {
        let region = match api {
            ApiName::Metadata => self.region().unwrap_or_default(),
            _ => self.region()?,
        };
        if let Some(found) = self.overridden(api, region) {
            let own = Some(found.signing_name.as_str()).filter(|name| !name.is_empty());
            let signing_name = own.unwrap_or(api.signing_name()).to_owned();
            return Ok(Endpoint { url: found.url.clone(), signing_region: found.signing_region.clone(), signing_name });
        }
        let url = self.variable_of(api).unwrap_or_else(|| self.default_url(api, region));
        Ok(Endpoint { url, signing_region: region.to_owned(), signing_name: api.signing_name().to_owned() })
    }

    /// Returns the override of the file. One with the identifier of the API takes precedence over one for both load balancer APIs.
    fn overridden(&self, api: ApiName, region: &str) -> Option<&ServiceOverride> {
        let is_here = |found: &&ServiceOverride| api == ApiName::Metadata || found.region == region;
        let found = self.config.overrides.iter().filter(|found| api.is_overridden_by(&found.service)).filter(is_here);
        let of_name = |found: &&ServiceOverride| found.service.eq_ignore_ascii_case(api.identifier());
        found.clone().find(of_name).or_else(|| found.clone().next())
    }

    fn variable_of(&self, api: ApiName) -> Option<String> {
        let variables = &self.config.endpoints;
        let own = Some(api.variable(variables)).filter(|url| !url.is_empty());
        let url = match api {
            ApiName::Metadata => own,
            _ if is_true(&variables.ignore) => None,
            _ => own.or(Some(variables.all.as_str()).filter(|url| !url.is_empty())),
        };
        url.map(str::to_owned)
    }

    fn default_url(&self, api: ApiName, region: &str) -> String {
        let variables = &self.config.endpoints;
        match api {
            ApiName::Metadata if variables.metadata_mode.eq_ignore_ascii_case("ipv6") => METADATA_IPV6.to_owned(),
            ApiName::Metadata => METADATA.to_owned(),
            _ => {
                let partition = Partition::of(region);
                let is_fips = is_true(&variables.fips) && !partition.is_always_fips;
                let suffix = if is_true(&variables.dual_stack) { partition.dual_stack } else { partition.suffix };
                format!("https://{}{}.{region}.{suffix}", api.signing_name(), if is_fips { "-fips" } else { "" })
            }
        }
    }
}

/// Returns the AWS partition of the region, as in ARNs.
pub(crate) fn partition_of(region: &str) -> &'static str {
    Partition::of(region).name
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

const METADATA: &str = "http://169.254.169.254";
const METADATA_IPV6: &str = "http://[fd00:ec2::254]";

/// A partition of AWS: regions that share accounts and a DNS suffix.
struct Partition {
    /// Beginning of the names of its regions.
    regions: &'static str,
    name: &'static str,
    suffix: &'static str,
    /// Suffix of endpoints that also have IPv6 addresses.
    dual_stack: &'static str,
    /// The usual endpoints are the FIPS endpoints.
    is_always_fips: bool,
}

impl Partition {
    const fn new(
        regions: &'static str,
        name: &'static str,
        suffix: &'static str,
        dual_stack: &'static str,
    ) -> Partition {
        Partition { regions, name, suffix, dual_stack, is_always_fips: false }
    }

    /// Returns the partition of the region. A region without a known prefix is one of the partition `aws`.
    fn of(region: &str) -> &'static Partition {
        PARTITIONS.iter().find(|partition| region.starts_with(partition.regions)).unwrap_or(&AWS)
    }
}

const AWS: Partition = Partition::new("", "aws", "amazonaws.com", "api.aws");

const PARTITIONS: &[Partition] = &[
    Partition::new("cn-", "aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    Partition { is_always_fips: true, ..Partition::new("us-gov-", "aws-us-gov", "amazonaws.com", "api.aws") },
    Partition::new("us-iso-", "aws-iso", "c2s.ic.gov", "api.aws.ic.gov"),
    Partition::new("us-isob-", "aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud"),
    Partition::new("eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    Partition::new("us-isof-", "aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    Partition::new("eusc-", "aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu"),
];

#[cfg(test)]
mod tests {
    use super::ApiName::*;
    use super::*;

    fn endpoints(
        region: &str,
        overrides: &[(&str, &str, &str, &str)],
        set: impl FnOnce(&mut EndpointVariables),
    ) -> Endpoints {
        let overrides = overrides.iter().map(|(service, region, url, signing_name)| ServiceOverride {
            service: (*service).to_owned(),
            region: (*region).to_owned(),
            url: (*url).to_owned(),
            signing_region: "signed".to_owned(),
            signing_name: (*signing_name).to_owned(),
        });
        let mut config = Config { region: region.to_owned(), overrides: overrides.collect(), ..Config::default() };
        set(&mut config.endpoints);
        Endpoints::new(Arc::new(config))
    }

    fn url(endpoints: &Endpoints, api: ApiName) -> String {
        endpoints.of(api).unwrap().url
    }

    #[test]
    fn the_region_determines_partition_and_url() {
        for (region, partition, api, expected) in [
            ("eu-west-1", "aws", Ec2, "https://ec2.eu-west-1.amazonaws.com"),
            ("eu-west-1", "aws", Elb, "https://elasticloadbalancing.eu-west-1.amazonaws.com"),
            ("eu-west-1", "aws", ElbV2, "https://elasticloadbalancing.eu-west-1.amazonaws.com"),
            ("eu-west-1", "aws", Sts, "https://sts.eu-west-1.amazonaws.com"),
            ("cn-north-1", "aws-cn", Ec2, "https://ec2.cn-north-1.amazonaws.com.cn"),
            ("us-gov-west-1", "aws-us-gov", Sts, "https://sts.us-gov-west-1.amazonaws.com"),
            ("us-iso-east-1", "aws-iso", Ec2, "https://ec2.us-iso-east-1.c2s.ic.gov"),
            ("us-isob-east-1", "aws-iso-b", Ec2, "https://ec2.us-isob-east-1.sc2s.sgov.gov"),
            ("eu-isoe-west-1", "aws-iso-e", Ec2, "https://ec2.eu-isoe-west-1.cloud.adc-e.uk"),
            ("us-isof-south-1", "aws-iso-f", Ec2, "https://ec2.us-isof-south-1.csp.hci.ic.gov"),
            ("eusc-de-east-1", "aws-eusc", Ec2, "https://ec2.eusc-de-east-1.amazonaws.eu"),
            ("xx-new-1", "aws", Ec2, "https://ec2.xx-new-1.amazonaws.com"),
        ] {
            let endpoint = endpoints(region, &[], |_| ()).of(api).unwrap();
            assert_eq!((endpoint.url.as_str(), partition_of(region)), (expected, partition));
            assert_eq!(
                (endpoint.signing_region.as_str(), endpoint.signing_name.as_str()),
                (region, api.signing_name())
            );
        }
    }

    #[test]
    fn fips_and_dual_stack_endpoints_are_chosen_by_the_environment() {
        let chosen = |region, fips: &str, dual_stack: &str, api| {
            let (fips, dual_stack) = (fips.to_owned(), dual_stack.to_owned());
            url(&endpoints(region, &[], |variables| (variables.fips, variables.dual_stack) = (fips, dual_stack)), api)
        };
        assert_eq!(chosen("us-east-1", "true", "", Sts), "https://sts-fips.us-east-1.amazonaws.com");
        assert_eq!(chosen("us-east-1", "", "TRUE", Ec2), "https://ec2.us-east-1.api.aws");
        assert_eq!(chosen("us-east-1", "true", "true", Elb), "https://elasticloadbalancing-fips.us-east-1.api.aws");
        assert_eq!(chosen("us-gov-west-1", "true", "", Ec2), "https://ec2.us-gov-west-1.amazonaws.com");
        assert_eq!(chosen("cn-north-1", "false", "true", Ec2), "https://ec2.cn-north-1.api.amazonwebservices.com.cn");
    }

    #[test]
    fn an_override_applies_to_its_service_and_region() {
        let found = endpoints(
            "r",
            &[
                ("EC2", "r", "http://ec2", "own"),
                ("elasticloadbalancing", "r", "http://both", ""),
                ("elastic load balancing V2", "r", "http://v2", ""),
                ("ec2imds", "elsewhere", "http://imds", ""),
                ("STS", "r", "http://sts", ""),
            ],
            |_| (),
        );
        let signed = |url: &str, name: &str| Endpoint {
            url: url.to_owned(),
            signing_region: "signed".to_owned(),
            signing_name: name.to_owned(),
        };
        assert_eq!(found.of(Ec2).unwrap(), signed("http://ec2", "own"));
        assert_eq!(found.of(Elb).unwrap(), signed("http://both", "elasticloadbalancing"));
        assert_eq!(found.of(ElbV2).unwrap(), signed("http://v2", "elasticloadbalancing"));
        assert_eq!(
            (url(&found, Metadata), url(&found, Sts)),
            ("http://imds".into(), "https://sts.r.amazonaws.com".into())
        );
        let elsewhere = endpoints("r", &[("ec2", "s", "http://ec2", ""), ("ec2metadata", "s", "http://m", "")], |_| ());
        assert_eq!(
            (url(&elsewhere, Ec2), url(&elsewhere, Metadata)),
            ("https://ec2.r.amazonaws.com".into(), "http://m".into())
        );
    }

    #[test]
    fn the_file_wins_over_the_environment_and_the_service_over_all_services() {
        let overrides = [("Elastic Load Balancing", "r", "http://file", "")];
        let set = |variables: &mut EndpointVariables| {
            variables.all = "http://all".to_owned();
            variables.ec2 = "http://ec2".to_owned();
            variables.elb = "http://elb".to_owned();
            variables.metadata = "http://metadata".to_owned();
        };
        let found = endpoints("r", &overrides, set);
        let urls = [Ec2, Elb, ElbV2, Sts, Metadata].map(|api| url(&found, api));
        assert_eq!(urls, ["http://ec2", "http://file", "http://all", "http://all", "http://metadata"]);
        assert_eq!(found.of(Ec2).unwrap().signing_region, "r");
        let ignored = endpoints("r", &overrides, |variables| {
            set(variables);
            variables.ignore = "true".to_owned();
        });
        let urls = [Ec2, Elb, Sts, Metadata].map(|api| url(&ignored, api));
        assert_eq!(
            urls,
            ["https://ec2.r.amazonaws.com", "http://file", "https://sts.r.amazonaws.com", "http://metadata"]
        );
    }

    #[test]
    fn without_a_region_only_the_metadata_service_is_known() {
        let found = endpoints("", &[], |_| ());
        assert_eq!(
            (found.of(Ec2).unwrap_err().kind(), url(&found, Metadata)),
            (ErrorKind::Unavailable, METADATA.to_owned())
        );
        found.clone().set_region("r");
        assert_eq!((url(&found, Ec2), found.region().unwrap()), ("https://ec2.r.amazonaws.com".to_owned(), "r"));
        let ipv6 = endpoints("", &[], |variables| variables.metadata_mode = "IPv6".to_owned());
        assert_eq!(url(&ipv6, Metadata), METADATA_IPV6);
    }
}
