//! Checks of a provider beyond the types of the values. All errors are collected.

use std::path::Path;

use super::declared::Key;
use super::settings::View;
use crate::{ConfigErrors, Secret};

/// Further checks of one section, with all errors so far.
#[derive(Debug)]
pub struct Checks<'a> {
    view: View<'a>,
    errors: ConfigErrors,
}

impl<'a> View<'a> {
    /// Begins further checks of this section, after the errors of [`Table::check`](super::Table::check).
    pub fn checks(self, errors: ConfigErrors) -> Checks<'a> {
        Checks { view: self, errors }
    }
}

impl Checks<'_> {
    /// Adds an error of a key, with its remedy.
    pub fn error(&mut self, key: &Key, message: impl Into<String>, hint: &str) {
        self.errors.push(self.view.error(key, message).hint(hint));
    }

    /// Returns a required secret: the value of its key, or the trimmed text of the file that another key names. If neither is set,
    /// `missing` is the error with its remedy. After an error the secret is empty.
    pub fn secret(
        &mut self,
        (key, secret): (&Key, &Secret),
        (file_key, file): (&Key, &Path),
        missing: (&str, &str),
    ) -> Secret {
        match (secret.is_empty(), file.as_os_str().is_empty()) {
            (false, true) => return secret.clone(),
            (true, true) => self.error(key, missing.0, missing.1),
            (false, false) => self.error(file_key, format!("{} is set as well", key.name), "set only one of them"),
            (true, false) => match std::fs::read_to_string(file) {
                Ok(text) if text.trim().is_empty() => {
                    self.error(file_key, "the file is empty", "write the secret to it")
                }
                Ok(text) => return text.trim().into(),
                Err(error) => {
                    let message = format!("cannot read {}: {error}", file.display());
                    self.error(file_key, message, "check the path and its permissions");
                }
            },
        }
        Secret::default()
    }

    /// Checks a URL of HTTP or HTTPS.
    pub fn http_url(&mut self, key: &Key, text: &str) {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or_default();
        let is_valid = rest.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
            && !rest.contains(|c: char| c.is_whitespace() || c.is_control());
        if !is_valid {
            self.error(key, format!("{text:?} is not an http:// or https:// URL"), "write https://HOST");
        }
    }

    /// Returns the value, or all errors.
    pub fn finish<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.errors.is_empty() { Ok(value) } else { Err(self.errors) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::table::{Format, Section, Settings, Table, UnknownKeys, keys};
    use crate::{ConfigFile, Environment, Secret};

    keys! {
        /// For tests.
        #[derive(Debug)]
        struct Keys {
            url: String = "url", "https://acme.example", "For tests.";
            token: Secret = "token" env "ACME_TOKEN", "", "For tests.";
            token_file: PathBuf = "token-file", "", "For tests.";
            rate: Option<f64> = "rate", "", "For tests.";
        }
    }

    fn settings(text: &str, token: &str) -> (Settings, crate::ConfigErrors) {
        let table = Table { format: Format::Yaml, unknown: UnknownKeys::Warn, sections: Section::document::<Keys>() };
        let environment = Environment::from_iter([("ACME_TOKEN", token)]);
        table.check(Some(&ConfigFile::from_text("acme.yaml", text)), &environment).unwrap()
    }

    fn read(text: &str, token: &str) -> Result<(Secret, Option<f64>), String> {
        let (settings, errors) = settings(text, token);
        let keys: Keys = settings.section("");
        let mut checks = settings.view("").checks(errors);
        checks.http_url(&Keys::url, &keys.url);
        let files = (&Keys::token_file, keys.token_file.as_path());
        let token = checks.secret((&Keys::token, &keys.token), files, ("the token is missing", "set ACME_TOKEN"));
        checks.finish((token, keys.rate)).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_secret_comes_from_its_key_or_from_a_file() {
        assert_eq!(read("token: a\nrate: 2.5\n", ""), Ok(("a".into(), Some(2.5))));
        assert_eq!(read("{}", "b"), Ok(("b".into(), None)));
        let file = std::env::temp_dir().join(format!("bowline-config-secret-{}", std::process::id()));
        let text = format!("token-file: {}\n", file.display());
        assert!(read(&text, "").unwrap_err().starts_with("acme.yaml:1: token-file: cannot read "));
        std::fs::write(&file, " \n").unwrap();
        let empty = read(&text, "").unwrap_err();
        std::fs::write(&file, "s3cr3t\n").unwrap();
        let (one, both) = (read(&text, ""), read(&text, "b"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(one, Ok(("s3cr3t".into(), None)));
        assert_eq!(empty, "acme.yaml:1: token-file: the file is empty; write the secret to it");
        assert_eq!(both.unwrap_err(), "acme.yaml:1: token-file: token is set as well; set only one of them");
    }

    #[test]
    fn all_errors_are_collected() {
        let error = read("url: acme\nrate: 0\n", "").unwrap_err();
        let expected = [
            "acme.yaml:2: rate: \"0\" is not a number above 0; write a number such as 2.5",
            "acme.yaml:1: url: \"acme\" is not an http:// or https:// URL; write https://HOST",
            "acme.yaml: token: the token is missing; set ACME_TOKEN",
        ];
        assert_eq!(error.lines().collect::<Vec<_>>(), expected);
        for url in ["::", "http://", "https:///a", "ftp://a", "https://:80", "https://a b"] {
            assert!(read(&format!("url: {url:?}\n"), "a").is_err(), "{url}");
        }
        for url in ["http://a", "https://a.example:8080/v2", "http://[::1]:80"] {
            assert!(read(&format!("url: {url:?}\n"), "a").is_ok(), "{url}");
        }
    }
}
