//! Resolves the flags of HTTP serving (SRV-1 to SRV-6, HOOK-1, HOOK-2).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_cloud::CloudProvider;
use bowline_config::{ConfigError, ConfigErrors, nearest};
use bowline_serving::{
    AllowedPaths, AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, TlsOptions,
    check_cipher_suites,
};

use super::{list, valid};
use crate::choice;
use crate::cli::{
    AuthenticationArgs, AuthorizationArgs, ManagerArgs, RequestHeaderArgs, SecureServingArgs, WebhookArgs,
};
use crate::feature_gates::FeatureGates;
use crate::flags::Given;
use crate::webhooks;

/// Name of the webhooks' certificate pair.
// upstream: the same name.
const WEBHOOK_PAIR: &str = "cloud-controller-manager-webhook";

/// Go's CurveID numbers: P-256, P-384, P-521, X25519, and the hybrids with ML-KEM.
const CURVES: [u16; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

/// HTTP endpoints of the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// HTTPS server; `None` with `--secure-port=0`.
    pub https: Option<ServingOptions>,
    /// Authentication of clients.
    pub authentication: AuthenticationOptions,
    /// Authorization of clients.
    pub authorization: AuthorizationOptions,
    /// Whether `/debug/pprof/` and `/debug/flags/` are served.
    pub profiling: bool,
    /// Admission webhooks.
    pub webhooks: Webhooks,
}

/// Admission webhooks of providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhooks {
    /// Entries of `--webhooks`: `*`, `NAME`, `-NAME`.
    pub selection: Vec<String>,
    /// HTTPS server of the webhooks; `None` if none is selected, the port is 0 or the feature gate is off.
    pub https: Option<ServingOptions>,
}

impl Serving {
    pub(crate) fn resolve(
        args: &ManagerArgs,
        gates: &FeatureGates,
        warnings: &mut Vec<String>,
        errors: &mut ConfigErrors,
    ) -> Serving {
        let https = listener(&Listener::from(&args.serving), warnings, errors);
        let webhooks = selected_webhooks(&args.webhook, gates, warnings, errors);
        check_ports(&args.serving, &args.webhook, errors);
        Serving {
            https,
            authentication: authentication(&args.authentication, gates, errors),
            authorization: authorization(&args.authorization, errors),
            profiling: valid(&args.debugging.profiling, errors).unwrap_or(false),
            webhooks,
        }
    }
}

impl Webhooks {
    /// Whether the webhook of this name is selected (HOOK-1).
    pub fn takes(&self, name: &str) -> bool {
        choice::takes(&self.selection, name)
    }

    /// Reports selected names that are not webhooks of the providers, and selected webhooks with the same name or path.
    pub fn errors(&self, providers: &[Arc<dyn CloudProvider>]) -> ConfigErrors {
        let mut declared = webhooks::declarations(providers);
        let known: Vec<_> = declared.iter().map(|(name, _)| name.clone()).collect();
        let mut errors = ConfigErrors::new();
        for name in choice::names(&self.selection).filter(|name| !known.iter().any(|known| known == name)) {
            // upstream: this message.
            let error = ConfigError::flag("webhooks", format!("{name:?} is not in the list of known webhooks"));
            errors.push(match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error,
            });
        }
        declared.retain(|(name, _)| self.takes(name));
        if let Some(message) = webhooks::conflict(&declared) {
            let hint = "disable one of them, or run `bowline admission-server` for each cloud";
            errors.push(ConfigError::flag("webhooks", message).hint(hint));
        }
        errors
    }
}

fn selected_webhooks(
    args: &WebhookArgs,
    gates: &FeatureGates,
    warnings: &mut Vec<String>,
    errors: &mut ConfigErrors,
) -> Webhooks {
    let selection = list(&args.webhooks);
    let https = listener(&Listener::from(args), warnings, errors);
    let is_gated = !selection.is_empty() && !gates.webhooks();
    if is_gated {
        warnings.push("--webhooks has no effect without --feature-gates=CloudControllerManagerWebhook=true".to_owned());
    }
    let https = https.filter(|_| !selection.is_empty() && !is_gated);
    Webhooks { selection, https }
}

// upstream: this message.
fn check_ports(serving: &SecureServingArgs, webhook: &WebhookArgs, errors: &mut ConfigErrors) {
    if let (Ok(port), Ok(other)) = (&serving.secure_port, &webhook.webhook_secure_port)
        && port == other
        && *port != 0
    {
        errors.push(ConfigError::new("--webhook-secure-port cannot be the same value as --secure-port"));
    }
}

// ---- listeners

/// Flags of a listener. There are two sets of them, with different prefixes.
struct Listener<'a> {
    /// Prefix of the flag names.
    prefix: &'static str,
    pair_name: String,
    address: &'a Given<IpAddr>,
    port: &'a Given<i64>,
    directory: Option<&'a PathBuf>,
    certificate: Option<&'a PathBuf>,
    key: Option<&'a PathBuf>,
    sni: &'a [String],
    suites: &'a [String],
    curves: &'a [String],
    min_version: &'a str,
    no_http2: &'a Given<bool>,
    max_streams: Option<&'a Given<i64>>,
    share_port: Option<&'a Given<bool>>,
    share_address: Option<&'a Given<bool>>,
}

impl<'a> From<&'a SecureServingArgs> for Listener<'a> {
    fn from(args: &'a SecureServingArgs) -> Listener<'a> {
        Listener {
            prefix: "",
            pair_name: TlsOptions::default().pair_name,
            address: &args.bind_address,
            port: &args.secure_port,
            directory: args.cert_dir.as_ref(),
            certificate: args.tls_cert_file.as_ref(),
            key: args.tls_private_key_file.as_ref(),
            sni: &args.tls_sni_cert_key,
            suites: &args.tls_cipher_suites,
            curves: &args.tls_curve_preferences,
            min_version: &args.tls_min_version,
            no_http2: &args.disable_http2_serving,
            max_streams: Some(&args.http2_max_streams_per_connection),
            share_port: Some(&args.permit_port_sharing),
            share_address: Some(&args.permit_address_sharing),
        }
    }
}

impl<'a> From<&'a WebhookArgs> for Listener<'a> {
    fn from(args: &'a WebhookArgs) -> Listener<'a> {
        Listener {
            prefix: "webhook-",
            pair_name: WEBHOOK_PAIR.to_owned(),
            address: &args.webhook_bind_address,
            port: &args.webhook_secure_port,
            directory: args.webhook_cert_dir.as_ref(),
            certificate: args.webhook_tls_cert_file.as_ref(),
            key: args.webhook_tls_private_key_file.as_ref(),
            sni: &args.webhook_tls_sni_cert_key,
            suites: &args.webhook_tls_cipher_suites,
            curves: &args.webhook_tls_curve_preferences,
            min_version: &args.webhook_tls_min_version,
            no_http2: &args.webhook_disable_http2_serving,
            max_streams: None,
            share_port: None,
            share_address: None,
        }
    }
}

impl Listener<'_> {
    fn flag(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn error(&self, name: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::flag(&self.flag(name), message)
    }
}

/// Resolves the options of a listener; `None` if the port is 0 or invalid.
fn listener(flags: &Listener<'_>, warnings: &mut Vec<String>, errors: &mut ConfigErrors) -> Option<ServingOptions> {
    let defaults = ServingOptions::default();
    let switch = |given: Option<&Given<bool>>, errors: &mut ConfigErrors| {
        given.and_then(|given| valid(given, errors)).unwrap_or(false)
    };
    let options = ServingOptions {
        bind_address: valid(flags.address, errors).unwrap_or(defaults.bind_address),
        port: port(flags, errors),
        tls: tls(flags, warnings, errors),
        http2: !switch(Some(flags.no_http2), errors),
        max_streams: max_streams(flags, errors),
        share_port: switch(flags.share_port, errors),
        share_address: switch(flags.share_address, errors),
    };
    Some(options).filter(|options| options.port != 0)
}

// upstream: this message.
fn port(flags: &Listener<'_>, errors: &mut ConfigErrors) -> u16 {
    let Some(port) = valid(flags.port, errors) else { return 0 };
    u16::try_from(port).unwrap_or_else(|_| {
        let name = flags.flag("secure-port");
        errors.push(ConfigError::new(format!(
            "--{name} {port} must be between 0 and 65535, inclusive. 0 for turning off secure port"
        )));
        0
    })
}

fn max_streams(flags: &Listener<'_>, errors: &mut ConfigErrors) -> u32 {
    let Some(number) = flags.max_streams.and_then(|given| valid(given, errors)) else { return 0 };
    u32::try_from(number).unwrap_or_else(|_| {
        let message = format!("{number} is out of range; use 0 for the default of the HTTP library");
        errors.push(flags.error("http2-max-streams-per-connection", message));
        0
    })
}

fn tls(flags: &Listener<'_>, warnings: &mut Vec<String>, errors: &mut ConfigErrors) -> TlsOptions {
    let named = |path: Option<&PathBuf>| path.filter(|path| !path.as_os_str().is_empty()).cloned();
    check_curves(flags, warnings, errors);
    TlsOptions {
        files: files(flags, errors),
        directory: named(flags.directory),
        pair_name: flags.pair_name.clone(),
        sni: sni(flags, errors),
        only_tls13: only_tls13(flags, warnings, errors),
        cipher_suites: suites(flags, warnings, errors),
    }
}

/// Resolves the certificate and key files; both or neither must be set.
fn files(flags: &Listener<'_>, errors: &mut ConfigErrors) -> Option<(PathBuf, PathBuf)> {
    let named = |path: Option<&PathBuf>| path.filter(|path| !path.as_os_str().is_empty()).cloned();
    let (there, missing) = match (named(flags.certificate), named(flags.key)) {
        (Some(certificate), Some(key)) => return Some((certificate, key)),
        (None, None) => return None,
        (Some(_), None) => ("tls-cert-file", "tls-private-key-file"),
        (None, Some(_)) => ("tls-private-key-file", "tls-cert-file"),
    };
    let message = format!("requires --{}", flags.flag(missing));
    errors.push(flags.error(there, message).hint("set both or neither"));
    None
}

/// Parses `cert,key` or `cert,key:name,name`; several in one value are separated by `;`.
fn sni(flags: &Listener<'_>, errors: &mut ConfigErrors) -> Vec<(PathBuf, PathBuf, Vec<String>)> {
    let given = flags.sni.iter().flat_map(|value| value.split(';')).filter(|pair| !pair.is_empty());
    let mut pairs = Vec::new();
    for pair in given {
        match sni_pair(pair) {
            Some(pair) => pairs.push(pair),
            None => {
                let message = format!("{pair:?} is not a pair of certificate and key files");
                let hint = "use example.crt,example.key or example.crt,example.key:example.com,*.example.com";
                errors.push(flags.error("tls-sni-cert-key", message).hint(hint));
            }
        }
    }
    pairs
}

fn sni_pair(pair: &str) -> Option<(PathBuf, PathBuf, Vec<String>)> {
    let (files, names) = pair.split_once(':').unwrap_or((pair, ""));
    let (certificate, key) = files.split_once(',')?;
    let (certificate, key) = (certificate.trim(), key.trim());
    let is_sound = !certificate.is_empty() && !key.is_empty() && !key.contains(',');
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    is_sound.then(|| (certificate.into(), key.into(), names.collect()))
}

// upstream: the message about an unknown version.
fn only_tls13(flags: &Listener<'_>, warnings: &mut Vec<String>, errors: &mut ConfigErrors) -> bool {
    match flags.min_version {
        "VersionTLS13" => true,
        "" | "VersionTLS12" => false,
        old @ ("VersionTLS10" | "VersionTLS11") => {
            let name = flags.flag("tls-min-version");
            warnings.push(format!("--{name}={old} means VersionTLS12: older versions are not supported"));
            false
        }
        other => {
            let error = flags.error("tls-min-version", format!("unknown tls version {other:?}"));
            errors.push(error.hint("use VersionTLS12 or VersionTLS13"));
            false
        }
    }
}

/// Returns the requested cipher suites that are supported.
fn suites(flags: &Listener<'_>, warnings: &mut Vec<String>, errors: &mut ConfigErrors) -> Vec<String> {
    let requested = list(flags.suites);
    let before = errors.iter().count();
    let hint = "use IANA names, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or remove the flag";
    let mut kept = Vec::new();
    for name in &requested {
        match check_cipher_suites(std::slice::from_ref(name)) {
            Ok(not_offered) if not_offered.is_empty() => kept.push(name.clone()),
            Ok(_) => {
                let flag = flags.flag("tls-cipher-suites");
                warnings.push(format!("--{flag}: {name} is ignored, because it is insecure"));
            }
            Err(error) => errors.push(flags.error("tls-cipher-suites", error.to_string()).hint(hint)),
        }
    }
    if kept.is_empty() && !requested.is_empty() && errors.iter().count() == before {
        errors.push(flags.error("tls-cipher-suites", "no cipher suite in the list is supported").hint(hint));
    }
    kept
}

fn check_curves(flags: &Listener<'_>, warnings: &mut Vec<String>, errors: &mut ConfigErrors) {
    let requested = list(flags.curves);
    let unknown = requested.iter().filter(|text| !text.parse().is_ok_and(|id: u16| CURVES.contains(&id)));
    for text in unknown {
        let error = flags.error("tls-curve-preferences", format!("unknown key exchange {text:?}"));
        errors.push(error.hint("use 23 (P-256), 24 (P-384), 25 (P-521), 29 (X25519) or 4588 (X25519MLKEM768)"));
    }
    if !requested.is_empty() {
        let name = flags.flag("tls-curve-preferences");
        warnings.push(format!("--{name} has no effect: the key exchanges are X25519, P-256 and P-384"));
    }
}

// ---- authentication and authorization

fn authentication(args: &AuthenticationArgs, gates: &FeatureGates, errors: &mut ConfigErrors) -> AuthenticationOptions {
    let defaults = AuthenticationOptions::default();
    let named = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
    AuthenticationOptions {
        kubeconfig: named(&args.authentication_kubeconfig),
        skip_lookup: valid(&args.authentication_skip_lookup, errors).unwrap_or(false),
        tolerate_lookup_failure: valid(&args.authentication_tolerate_lookup_failure, errors).unwrap_or(false),
        cache_ttl: valid(&args.authentication_token_webhook_cache_ttl, errors).unwrap_or(defaults.cache_ttl),
        client_ca_file: named(&args.client_ca_file),
        request_header: request_header(&args.request_header, gates, errors),
    }
}

fn request_header(args: &RequestHeaderArgs, gates: &FeatureGates, errors: &mut ConfigErrors) -> RequestHeaderOptions {
    let uid_headers = list(&args.requestheader_uid_headers);
    if !uid_headers.is_empty() && !gates.uid_headers() {
        // upstream: this message.
        let message = "--requestheader-uid-headers requires the RemoteRequestHeaderUID feature to be enabled";
        errors.push(ConfigError::new(message).hint("add --feature-gates=RemoteRequestHeaderUID=true"));
    }
    RequestHeaderOptions {
        client_ca_file: args.requestheader_client_ca_file.clone().filter(|path| !path.as_os_str().is_empty()),
        allowed_names: list(&args.requestheader_allowed_names),
        username_headers: headers(&args.requestheader_username_headers, "requestheader-username-headers", errors),
        group_headers: headers(&args.requestheader_group_headers, "requestheader-group-headers", errors),
        extra_header_prefixes: headers(
            &args.requestheader_extra_headers_prefix,
            "requestheader-extra-headers-prefix",
            errors,
        ),
        uid_headers,
    }
}

/// Parses a list of header names. An empty name is an error, because it would match no request.
fn headers(given: &[String], flag: &str, errors: &mut ConfigErrors) -> Vec<String> {
    let headers = list(given);
    if headers.iter().any(String::is_empty) {
        errors.push(ConfigError::flag(flag, "empty name in the list").hint("remove the extra comma"));
    }
    headers
}

fn authorization(args: &AuthorizationArgs, errors: &mut ConfigErrors) -> AuthorizationOptions {
    let defaults = AuthorizationOptions::default();
    AuthorizationOptions {
        kubeconfig: args.authorization_kubeconfig.clone().filter(|path| !path.as_os_str().is_empty()),
        always_allow_paths: allowed_paths(&args.authorization_always_allow_paths, errors),
        allow_ttl: valid(&args.authorization_webhook_cache_authorized_ttl, errors).unwrap_or(defaults.allow_ttl),
        deny_ttl: valid(&args.authorization_webhook_cache_unauthorized_ttl, errors).unwrap_or(defaults.deny_ttl),
    }
}

/// Validates the paths: exact, or prefixes with one `*` at the end.
fn allowed_paths(given: &[String], errors: &mut ConfigErrors) -> Vec<String> {
    let paths = list(given);
    for error in paths.iter().filter_map(|path| AllowedPaths::parse(std::slice::from_ref(path)).err()) {
        let error = ConfigError::flag("authorization-always-allow-paths", error.to_string());
        errors.push(error.hint("use at most one *, at the end, such as /metrics/*"));
    }
    paths
}

#[cfg(test)]
mod tests;
