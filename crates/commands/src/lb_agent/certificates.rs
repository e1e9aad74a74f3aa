//! `bowline lb-agent certificates`.

use std::path::Path;

use bowline_agent::{Issued, NewCertificates, PkiError, Usage, create_certificates};
use bowline_settings::BadInput;

use crate::cli::CertificatesArgs;
use crate::output;

pub(super) fn run(args: CertificatesArgs) -> anyhow::Result<()> {
    let new = NewCertificates {
        directory: args.directory,
        agents: args.agents.into_iter().map(|agent| (agent.name, agent.addresses)).collect(),
        clients: args.clients,
        days: args.days,
    };
    let issued = create_certificates(&new).map_err(to_error)?;
    output::print(format_args!("{}", text(&issued)))
}

fn to_error(error: PkiError) -> anyhow::Error {
    match error {
        PkiError::Name(..) | PkiError::Existing(..) | PkiError::Authority(..) => BadInput(error.to_string()).into(),
        PkiError::File(..) | PkiError::Certificate(_) => error.into(),
    }
}

/// One line for each certificate.
fn text(issued: &[Issued]) -> String {
    let files = |issued: &Issued| {
        let key = issued.key.file_name().unwrap_or_default();
        format!("{}, {}", issued.certificate.display(), Path::new(key).display())
    };
    let width = issued.iter().map(|one| files(one).len()).max().unwrap_or_default();
    let line = |one: &Issued| {
        let usage = match one.usage {
            Usage::Authority if one.is_new => "the CA; keep the key offline".to_owned(),
            Usage::Authority => "the CA".to_owned(),
            Usage::Agent => format!("for the agent {}", one.name),
            Usage::Client => format!("for the client {}", one.name),
        };
        let state = if one.is_new { "created" } else { "kept" };
        format!("{:width$}   {state}, valid until {}: {usage}\n", files(one), one.expires)
    };
    issued.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_has_a_line_with_its_files_and_its_usage() {
        let issued = |usage, name: &str, is_new| Issued {
            usage,
            name: name.to_owned(),
            certificate: format!("pki/{name}.crt").into(),
            key: format!("pki/{name}.key").into(),
            is_new,
            expires: "2036-11-17".to_owned(),
        };
        let text = text(&[issued(Usage::Authority, "ca", true), issued(Usage::Client, "bowline", false)]);
        let expected = "\
pki/ca.crt, ca.key             created, valid until 2036-11-17: the CA; keep the key offline
pki/bowline.crt, bowline.key   kept, valid until 2036-11-17: for the client bowline
";
        assert_eq!(text, expected);
    }
}
