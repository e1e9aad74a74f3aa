//! Container endpoint: ECS tasks and EKS Pod Identity.

use std::net::IpAddr;

use bowline_cloud::{Calls, Error, ErrorKind, Result, Retry};
use bowline_http::Api;
use http::{HeaderValue, Method, Uri, header};
use jiff::Timestamp;

use super::super::{Issued, invalid};
use super::decode;
use super::files::read_token;
use crate::config::CredentialVariables;

/// Address of the endpoint of ECS, and those of EKS Pod Identity.
const ECS: &str = "169.254.170.2";
const EKS: [&str; 2] = ["169.254.170.23", "fd00:ec2::23"];

const URI_VARIABLE: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const TOKEN_FILE_VARIABLE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// Returns the URL of the endpoint, if the environment names one. The token must not be sent to any other host without TLS.
pub(crate) fn url(variables: &CredentialVariables) -> Result<Option<Uri>> {
    let relative = &variables.container_relative_uri;
    let full = &variables.container_full_uri;
    let text = match (relative.is_empty(), full.is_empty()) {
        (true, true) => return Ok(None),
        (false, _) => format!("http://{ECS}/{}", relative.trim_start_matches('/')),
        (true, false) => full.clone(),
    };
    let uri: Uri = text.parse().map_err(|_| invalid(format!("{URI_VARIABLE} is not a URL")))?;
    match is_allowed(&uri) {
        true => Ok(Some(uri)),
        false => Err(invalid(format!(
            "{URI_VARIABLE} is neither an https:// URL nor a loopback address, nor {ECS}, {} or {}",
            EKS[0], EKS[1]
        ))),
    }
}

fn is_allowed(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_known = |address: IpAddr| {
        address.is_loopback() || [ECS, EKS[0], EKS[1]].iter().any(|known| known.parse() == Ok(address))
    };
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => host == "localhost" || host.parse().is_ok_and(is_known),
        _ => false,
    }
}

/// Reads the credentials. The token is replaced from time to time, so its file is read each time.
pub(crate) async fn issue(
    uri: &Uri,
    variables: &CredentialVariables,
    (http, calls): (&bowline_http::Client, &Calls),
    now: Timestamp,
) -> Result<Issued> {
    let base = format!("{}://{}", uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", |host| host.as_str()));
    let api = Api::new(http.clone(), calls, "container-credentials").base(&base);
    let path: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    let call = api.call("container_credentials_get", Method::GET, &path).raw_query(uri.query().unwrap_or_default());
    let call = match token(variables).await? {
        Some(token) => call.header(header::AUTHORIZATION, token),
        None => call,
    };
    let response = call.send().await.map_err(explained)?;
    decode(&response, format!("the container endpoint {base}"), now)
}

async fn token(variables: &CredentialVariables) -> Result<Option<HeaderValue>> {
    let (file, token) = (&variables.container_token_file, &variables.container_token);
    let text = match (file.is_empty(), token.is_empty()) {
        (false, _) => read_token(file, TOKEN_FILE_VARIABLE).await?,
        (true, false) => token.reveal().to_owned(),
        (true, true) => return Ok(None),
    };
    let value = HeaderValue::try_from(text);
    let mut value = value.map_err(|_| invalid("the token for the container endpoint is not a valid header"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn explained(error: Error) -> Error {
    let rejected = matches!(error.status(), Some(400 | 401 | 403 | 404));
    let kind = if rejected { ErrorKind::Unauthenticated } else { error.kind() };
    let advice = if rejected { Retry::Backoff } else { error.retry_advice() };
    Error::new(kind, error.operation(), error.message()).retry(advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn of(relative: &str, full: &str) -> std::result::Result<Option<String>, String> {
        let (container_relative_uri, container_full_uri) = (relative.to_owned(), full.to_owned());
        let variables =
            CredentialVariables { container_relative_uri, container_full_uri, ..Config::default().credentials };
        let found = url(&variables).map_err(|error| error.to_string())?;
        Ok(found.map(|uri| uri.to_string()))
    }

    #[test]
    fn only_known_hosts_get_the_token_without_tls() {
        for url in [
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://169.254.170.2/x?id=1",
            "http://127.0.0.1:80/x",
            "http://[::1]/x",
            "http://localhost/x",
            "https://example.com/x",
        ] {
            assert_eq!(of("", url), Ok(Some(url.to_owned())));
        }
        for url in ["http://example.com/x", "http://169.254.169.254/x", "http://localhost.example/x", "ftp://x/", "x"] {
            let error = of("", url).unwrap_err();
            assert!(error.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI is ne"), "{url}: {error}");
        }
        assert_eq!(of("/v2/c?id=1", "http://example.com"), Ok(Some("http://169.254.170.2/v2/c?id=1".to_owned())));
        assert_eq!(of("", ""), Ok(None));
    }
}
