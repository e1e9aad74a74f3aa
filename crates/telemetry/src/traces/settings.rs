//! The environment variables of OpenTelemetry.
//!
//! What cannot be read is remarked and its default used, as the specification wants: nobody's nodes wait for a trace.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// Where a collector is unless the environment says so.
const DEFAULT: &str = "http://localhost:4318";

/// How and where traces are sent.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) endpoint: Uri,
    pub(super) protocol: Protocol,
    /// They may hold credentials, and none of them is printed.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// What one delivery may take.
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
    /// Of the authority that vouches for the collector, if it is not one that the system knows.
    pub(super) certificate: Option<PathBuf>,
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: Sampler,
    pub(super) batch: Batch,
}

/// How spans are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    HttpProtobuf,
    HttpJson,
}

/// Which traces are recorded: the share of them. All that happens within a span follows its root, and no root comes from
/// elsewhere, so that the samplers that look at a parent come to the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler(pub(super) f64);

/// How much is kept and sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) queue: usize,
    pub(super) size: usize,
    pub(super) delay: Duration,
}

/// The environment, and what was wrong in it.
struct Reader<F> {
    get: F,
    remarks: Vec<String>,
}

impl Settings {
    /// What the environment asks for: `None` if no traces. Beside it, what could not be read.
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> (Option<Settings>, Vec<String>) {
        let mut reader = Reader { get, remarks: Vec::new() };
        let settings = reader.is_wanted().then(|| reader.settings()).flatten();
        (settings, reader.remarks)
    }
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    /// An empty variable is none.
    fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The variable for traces, or else the one for everything.
    fn otlp(&self, name: &str) -> Option<String> {
        self.text(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| self.text(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn is_wanted(&mut self) -> bool {
        if self.text("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return false;
        }
        match self.text("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => false,
            Some("otlp") => true,
            Some(other) => {
                self.remarks.push(format!("OTEL_TRACES_EXPORTER: there is no exporter {other:?} here; otlp is there"));
                false
            }
            None => self.otlp("ENDPOINT").is_some(),
        }
    }

    fn settings(&mut self) -> Option<Settings> {
        let protocol = self.protocol()?;
        let endpoint = self.endpoint()?;
        Some(Settings {
            endpoint,
            protocol,
            headers: self.headers(),
            timeout: self.timeout(),
            gzip: self.compresses(),
            certificate: self.otlp("CERTIFICATE").map(PathBuf::from),
            resource: self.resource(),
            sampler: self.sampler(),
            batch: self.batch(),
        })
    }

    fn compresses(&mut self) -> bool {
        match self.otlp("COMPRESSION").as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                self.remarks
                    .push(format!("OTEL_EXPORTER_OTLP_COMPRESSION: {other:?} is not gzip; nothing is compressed"));
                false
            }
        }
    }

    fn timeout(&mut self) -> Duration {
        let of_all = self.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000);
        self.millis("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", of_all)
    }

    fn protocol(&mut self) -> Option<Protocol> {
        match self.otlp("PROTOCOL").as_deref() {
            None | Some("http/protobuf") => Some(Protocol::HttpProtobuf),
            Some("http/json") => Some(Protocol::HttpJson),
            Some(other) => {
                let known = "http/protobuf or http/json";
                self.remarks.push(format!("OTEL_EXPORTER_OTLP_PROTOCOL: {other:?} is not one of {known}: no traces"));
                None
            }
        }
    }

    /// The variable for traces is the whole address, the one for everything is its beginning.
    fn endpoint(&mut self) -> Option<Uri> {
        let (name, text) = match self.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(text) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", text),
            None => {
                let base = self.text("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_else(|| DEFAULT.to_owned());
                ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/v1/traces", base.trim_end_matches('/')))
            }
        };
        let uri = text
            .parse()
            .ok()
            .filter(|uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if uri.is_none() {
            self.remarks.push(format!("{name} is not of the form http://HOST:PORT: no traces are sent"));
        }
        uri
    }

    /// Of what cannot be read, only the number is told: it may be a credential.
    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let text = self.otlp("HEADERS").unwrap_or_default();
        let (good, bad): (Vec<_>, Vec<_>) = pairs(&text).map(|pair| pair.and_then(header)).partition(Option::is_some);
        if !bad.is_empty() {
            let count = bad.len();
            self.remarks.push(format!("OTEL_EXPORTER_OTLP_HEADERS: {count} of them are not of the form NAME=VALUE"));
        }
        good.into_iter().flatten().collect()
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let text = self.text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut resource: Vec<_> = pairs(&text).flatten().collect();
        let own = resource.iter().position(|(name, _)| name == "service.name");
        let own = own.map(|index| resource.swap_remove(index).1);
        let name = self.text("OTEL_SERVICE_NAME").or(own).unwrap_or_else(|| "bowline".to_owned());
        resource.push(("service.name".to_owned(), name));
        if resource.iter().all(|(name, _)| name != "service.version") {
            resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        }
        resource
    }

    fn sampler(&mut self) -> Sampler {
        let name = self.text("OTEL_TRACES_SAMPLER").unwrap_or_default();
        match name.strip_prefix("parentbased_").unwrap_or(&name) {
            "" | "always_on" => Sampler(1.0),
            "always_off" => Sampler(0.0),
            "traceidratio" => Sampler(self.share()),
            _ => {
                self.remarks.push(format!("OTEL_TRACES_SAMPLER: {name:?} is not known; all traces are recorded"));
                Sampler(1.0)
            }
        }
    }

    fn share(&mut self) -> f64 {
        let Some(text) = self.text("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
        text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).unwrap_or_else(|| {
            self.remarks.push(format!("OTEL_TRACES_SAMPLER_ARG: {text:?} is no number from 0 to 1; it is taken for 1"));
            1.0
        })
    }

    fn batch(&mut self) -> Batch {
        let queue = self.size("OTEL_BSP_MAX_QUEUE_SIZE", 2048);
        let size = self.size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).min(queue);
        Batch { queue, size, delay: self.millis("OTEL_BSP_SCHEDULE_DELAY", 5_000) }
    }

    fn size(&mut self, name: &str, otherwise: u64) -> usize {
        // More than this is no buffer any more.
        self.number(name, otherwise).clamp(1, 1 << 20) as usize
    }

    fn millis(&mut self, name: &str, otherwise: u64) -> Duration {
        // A day is as good as for ever, and can be added to any time.
        Duration::from_millis(self.number(name, otherwise).clamp(1, 86_400_000))
    }

    fn number(&mut self, name: &str, otherwise: u64) -> u64 {
        let Some(text) = self.text(name) else { return otherwise };
        text.parse().unwrap_or_else(|_| {
            self.remarks.push(format!("{name}: {text:?} is no whole number; it is taken for {otherwise}"));
            otherwise
        })
    }
}

/// `name=value,name=value`, with escapes as in a URL.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    let filled = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    filled.map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
        Some((name.trim().to_owned(), value)).filter(|(name, _)| !name.is_empty())
    })
}

fn header((name, value): (String, String)) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name).ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let find = |wanted: &str| variables.iter().find(|(name, _)| *name == wanted).map(|(_, text)| text.to_string());
        Settings::read(find)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn traces_are_off_unless_somebody_wants_them() {
        let off: [&[(&str, &str)]; 5] = [
            &[],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "true")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
            &[("OTEL_SERVICE_NAME", "x")],
        ];
        for variables in off {
            let (settings, remarks) = read(variables);
            assert!(settings.is_none() && remarks.is_empty(), "{variables:?}");
        }
        for on in [[ENDPOINT], [("OTEL_TRACES_EXPORTER", "otlp")]] {
            assert!(read(&on).0.is_some(), "{on:?}");
        }
    }

    #[test]
    fn where_traces_go() {
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let one = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let table: [(&[(&str, &str)], &str); 4] = [
            (&[(all, "http://c:1")], "http://c:1/v1/traces"),
            (&[(all, "http://c:1/base/")], "http://c:1/base/v1/traces"),
            (&[(one, "https://c/x"), (all, "http://d")], "https://c/x"),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], "http://localhost:4318/v1/traces"),
        ];
        for (variables, wanted) in table {
            assert_eq!(read(variables).0.unwrap().endpoint.to_string(), wanted, "{variables:?}");
        }
        for bad in ["collector:4318", "ftp://c", "http://", "::"] {
            let (settings, remarks) = read(&[(all, bad)]);
            assert!(settings.is_none() && remarks.len() == 1, "{bad}: {remarks:?}");
        }
    }

    #[test]
    fn every_variable_reaches_its_place() {
        let settings = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cr3t, x-team=ports"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,zone=quay%20west"),
            ("OTEL_SERVICE_NAME", "b"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ]);
        let (settings, remarks) = (settings.0.unwrap(), settings.1);
        assert!(remarks.is_empty(), "{remarks:?}");
        assert_eq!((settings.protocol, settings.gzip), (Protocol::HttpJson, true));
        assert_eq!(settings.headers[0].1, "Bearer s3cr3t");
        assert_eq!(settings.headers[1].0, "x-team");
        assert_eq!(settings.timeout, Duration::from_millis(250));
        let named = |name: &str| settings.resource.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!((named("service.name"), named("zone")), (Some("b"), Some("quay west")));
        assert_eq!(settings.sampler, Sampler(0.25));
        assert_eq!(settings.batch, Batch { queue: 8, size: 8, delay: Duration::from_millis(100) });
        assert!(!format!("{settings:?}").contains("s3cr3t"), "{settings:?}");
    }

    #[test]
    fn what_cannot_be_read_is_remarked_and_nothing_secret_with_it() {
        let (settings, remarks) = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cr3t,=s3cr3t,bad name=s3cr3t,good=x"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ]);
        let settings = settings.unwrap();
        assert_eq!((settings.headers.len(), settings.batch.queue), (1, 2048));
        assert_eq!((settings.timeout, settings.sampler), (Duration::from_secs(10), Sampler(1.0)));
        assert_eq!(remarks.len(), 5, "{remarks:?}");
        assert!(remarks.iter().all(|remark| !remark.contains("s3cr3t")), "{remarks:?}");
        for unknown in ["carrier-pigeon", "grpc"] {
            let (settings, remarks) = read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", unknown)]);
            assert!(settings.is_none() && remarks[0].contains("http/protobuf or http/json"), "{remarks:?}");
        }
    }
}
