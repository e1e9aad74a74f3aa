//! Settings from the environment variables of OpenTelemetry.
//!
//! An invalid variable causes a warning and its default is used, as the specification requires: tracing must not keep the manager
//! from starting.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// Default endpoint of the collector.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Settings of the exporter.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) endpoint: Uri,
    pub(super) protocol: Protocol,
    /// Headers, which may contain credentials and are never printed.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Timeout of one export.
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
    /// CA certificate of the collector, if the system does not trust it.
    pub(super) certificate: Option<PathBuf>,
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: Sampler,
    pub(super) batch: Batch,
}

/// Encoding of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    HttpProtobuf,
    HttpJson,
}

/// Share of traces that are sampled. Child spans follow their root, and no root has a remote parent, so that the parent-based
/// samplers are equivalent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler(pub(super) f64);

/// Limits of buffer and batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) queue: usize,
    pub(super) size: usize,
    pub(super) delay: Duration,
}

/// Reads the environment and collects warnings.
struct Reader<F> {
    get: F,
    warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings; `None` if tracing is disabled. The second value has the warnings about invalid variables.
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> (Option<Settings>, Vec<String>) {
        let mut reader = Reader { get, warnings: Vec::new() };
        let settings = reader.is_enabled().then(|| reader.settings()).flatten();
        (settings, reader.warnings)
    }
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    /// Reads a variable. An empty one counts as unset.
    fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Reads the variable for traces, or the one for all signals.
    fn otlp(&self, name: &str) -> Option<String> {
        self.text(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| self.text(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn is_enabled(&mut self) -> bool {
        if self.text("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return false;
        }
        match self.text("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => false,
            Some("otlp") => true,
            Some(other) => {
                self.warnings.push(format!("OTEL_TRACES_EXPORTER: unsupported exporter {other:?}; use otlp"));
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
                self.warnings
                    .push(format!("OTEL_EXPORTER_OTLP_COMPRESSION: unsupported value {other:?}; use gzip or none"));
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
                let supported = "http/protobuf or http/json";
                self.warnings.push(format!(
                    "OTEL_EXPORTER_OTLP_PROTOCOL: unsupported protocol {other:?}; use {supported}; tracing is disabled"
                ));
                None
            }
        }
    }

    /// Reads the endpoint. The variable for traces has the full URL, the one for all signals the base URL.
    fn endpoint(&mut self) -> Option<Uri> {
        let (name, text) = match self.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(text) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", text),
            None => {
                let base = self.text("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
                ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/v1/traces", base.trim_end_matches('/')))
            }
        };
        let uri = text
            .parse()
            .ok()
            .filter(|uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if uri.is_none() {
            self.warnings.push(format!("{name}: expected http://HOST:PORT; tracing is disabled"));
        }
        uri
    }

    /// Reads the headers. The warning has only the number of invalid ones, because they may contain credentials.
    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let text = self.otlp("HEADERS").unwrap_or_default();
        let (good, bad): (Vec<_>, Vec<_>) = pairs(&text).map(|pair| pair.and_then(header)).partition(Option::is_some);
        if !bad.is_empty() {
            let count = bad.len();
            self.warnings
                .push(format!("OTEL_EXPORTER_OTLP_HEADERS: {count} invalid headers are ignored; use NAME=VALUE"));
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
                self.warnings.push(format!("OTEL_TRACES_SAMPLER: unknown sampler {name:?}; all traces are sampled"));
                Sampler(1.0)
            }
        }
    }

    fn share(&mut self) -> f64 {
        let Some(text) = self.text("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
        text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).unwrap_or_else(|| {
            self.warnings
                .push(format!("OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, not {text:?}; using 1"));
            1.0
        })
    }

    fn batch(&mut self) -> Batch {
        let queue = self.size("OTEL_BSP_MAX_QUEUE_SIZE", 2048);
        let size = self.size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).min(queue);
        Batch { queue, size, delay: self.millis("OTEL_BSP_SCHEDULE_DELAY", 5_000) }
    }

    fn size(&mut self, name: &str, default: u64) -> usize {
        // Upper bound of the buffer.
        self.number(name, default).clamp(1, 1 << 20) as usize
    }

    fn millis(&mut self, name: &str, default: u64) -> Duration {
        // At most a day, which can be added to any time.
        Duration::from_millis(self.number(name, default).clamp(1, 86_400_000))
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        let Some(text) = self.text(name) else { return default };
        text.parse().unwrap_or_else(|_| {
            self.warnings.push(format!("{name}: expected a whole number, not {text:?}; using {default}"));
            default
        })
    }
}

/// Parses `name=value,name=value` with percent-encoded values.
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
        let find = |key: &str| variables.iter().find(|(name, _)| *name == key).map(|(_, text)| text.to_string());
        Settings::read(find)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn tracing_is_disabled_by_default() {
        let off: [&[(&str, &str)]; 5] = [
            &[],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "true")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
            &[("OTEL_SERVICE_NAME", "x")],
        ];
        for variables in off {
            let (settings, warnings) = read(variables);
            assert!(settings.is_none() && warnings.is_empty(), "{variables:?}");
        }
        for on in [[ENDPOINT], [("OTEL_TRACES_EXPORTER", "otlp")]] {
            assert!(read(&on).0.is_some(), "{on:?}");
        }
    }

    #[test]
    fn the_endpoint_is_read_from_both_variables() {
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let one = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let table: [(&[(&str, &str)], &str); 4] = [
            (&[(all, "http://c:1")], "http://c:1/v1/traces"),
            (&[(all, "http://c:1/base/")], "http://c:1/base/v1/traces"),
            (&[(one, "https://c/x"), (all, "http://d")], "https://c/x"),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], "http://localhost:4318/v1/traces"),
        ];
        for (variables, expected) in table {
            assert_eq!(read(variables).0.unwrap().endpoint.to_string(), expected, "{variables:?}");
        }
        for bad in ["collector:4318", "ftp://c", "http://", "::"] {
            let (settings, warnings) = read(&[(all, bad)]);
            assert!(settings.is_none() && warnings.len() == 1, "{bad}: {warnings:?}");
        }
    }

    #[test]
    fn variables_set_their_options() {
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
        let (settings, warnings) = (settings.0.unwrap(), settings.1);
        assert!(warnings.is_empty(), "{warnings:?}");
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
    fn invalid_variables_cause_warnings_without_secrets() {
        let (settings, warnings) = read(&[
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
        assert_eq!(warnings.len(), 5, "{warnings:?}");
        assert!(warnings.iter().all(|warning| !warning.contains("s3cr3t")), "{warnings:?}");
        for unknown in ["carrier-pigeon", "grpc"] {
            let (settings, warnings) = read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", unknown)]);
            assert!(settings.is_none() && warnings[0].contains("http/protobuf or http/json"), "{warnings:?}");
        }
    }
}
