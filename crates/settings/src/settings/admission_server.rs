//! Resolves the flags of the admission server.

use std::path::PathBuf;

use bowline_config::ConfigErrors;
use bowline_serving::{ServingOptions, TlsOptions};

use super::{Reach, logging, valid};
use crate::cli::AdmissionServerArgs;

/// Directory of the certificates in that of temporary files.
// upstream: the default of controller-runtime.
const CERTIFICATES: &str = "k8s-webhook-server/serving-certs";

/// Resolved settings of the admission server.
#[derive(Debug)]
pub struct AdmissionServer {
    /// Access to the clouds. The server has no API server client.
    pub reach: Reach,
    /// HTTPS server.
    pub serving: ServingOptions,
}

impl AdmissionServer {
    /// Resolves and validates the flags.
    pub fn resolve(args: &AdmissionServerArgs, errors: &mut ConfigErrors) -> AdmissionServer {
        errors.extend(args.errors.clone());
        logging::resolve_admission_server(args, errors);
        let directory = args.cert_dir.clone().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| std::env::temp_dir().join(CERTIFICATES));
        let defaults = ServingOptions::default();
        AdmissionServer {
            reach: Reach::of_clouds(&args.clouds, &args.calls, errors),
            serving: ServingOptions {
                bind_address: valid(&args.bind_address, errors).unwrap_or(defaults.bind_address),
                port: valid(&args.port, errors).unwrap_or_default(),
                tls: TlsOptions { files: Some(pair(directory)), ..defaults.tls },
                ..defaults
            },
        }
    }
}

/// Certificate and key files.
fn pair(directory: PathBuf) -> (PathBuf, PathBuf) {
    (directory.join("tls.crt"), directory.join("tls.key"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        server: AdmissionServerArgs,
    }

    fn resolve(flags: &[&str]) -> Result<AdmissionServer, Vec<String>> {
        let args = Cli::parse_from(["bowline", "--cloud-provider=local"].iter().chain(flags)).server;
        let mut errors = ConfigErrors::new();
        let server = AdmissionServer::resolve(&args, &mut errors);
        if errors.is_empty() { Ok(server) } else { Err(errors.iter().map(ToString::to_string).collect()) }
    }

    #[test]
    fn the_defaults_are_those_of_controller_runtime() {
        let serving = resolve(&[]).unwrap().serving;
        assert_eq!((serving.bind_address.to_string().as_str(), serving.port, serving.http2), ("0.0.0.0", 9443, true));
        let directory = std::env::temp_dir().join("k8s-webhook-server").join("serving-certs");
        assert_eq!(serving.tls.files, Some((directory.join("tls.crt"), directory.join("tls.key"))));
    }

    #[test]
    fn the_flags_set_the_address_the_certificates_and_the_clouds() {
        let flags = ["--bind-address=::1", "--port=8443", "--cert-dir=/certs", "--cloud-config=a.yaml", "-v=2"];
        let server = resolve(&flags).unwrap();
        assert_eq!((server.serving.bind_address.to_string().as_str(), server.serving.port), ("::1", 8443));
        assert_eq!(server.serving.tls.files, Some(("/certs/tls.crt".into(), "/certs/tls.key".into())));
        let [provider] = &server.reach.providers[..] else { panic!("one provider") };
        assert_eq!((provider.name.as_str(), &provider.config), ("local", &Some("a.yaml".into())));
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let errors = resolve(&["--port=70000", "--bind-address=x", "-v=a", "--cluster-name="]).unwrap_err();
        assert_eq!(errors.len(), 4, "{errors:?}");
    }
}
