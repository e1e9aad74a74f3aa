//! Keys of a Secret, and names of the files in a directory.
//!
//! ```text
//!  SERVER.username, SERVER.password
//!  SERVER.vc-session-manager-url, SERVER.vc-session-manager-token
//!  server_X, username_X, password_X     for a server that cannot be part of a key, such as an IPv6 address
//! ```
//!
//! A bad key spoils only its own server, because the CSI driver uses the same Secret with keys of its own.

use std::collections::BTreeMap;

use bowline_config::Secret;

use super::Login;

/// Credentials of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Entry {
    user: String,
    password: Secret,
    url: String,
    token: Secret,
}

/// Contents of a Secret or a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Contents {
    /// Logins by server.
    pub(super) logins: BTreeMap<String, Login>,
    /// Errors, without any value.
    pub(super) errors: Vec<String>,
}

/// Field of an [`Entry`], and the ending of its key.
const ENDINGS: [(&str, Field); 4] = [
    ("password", Field::Password),
    ("username", Field::User),
    ("vc-session-manager-url", Field::Url),
    ("vc-session-manager-token", Field::Token),
];

/// Beginnings of the keys whose server is a value.
const BEGINNINGS: [(&str, Field); 3] =
    [("server_", Field::Server), ("username_", Field::User), ("password_", Field::Password)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Server,
    User,
    Password,
    Url,
    Token,
}

/// Entry of keys with a common ending.
#[derive(Default)]
struct Indirect {
    server: String,
    entry: Entry,
}

const INCOMPLETE: &str = "Username/Password is missing";

impl Contents {
    /// Reads all keys with their values.
    pub(super) fn read<'a>(values: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Contents {
        let (mut contents, mut entries) = (Contents::default(), BTreeMap::<String, Entry>::new());
        let mut indirect = BTreeMap::<&str, Indirect>::new();
        for (key, bytes) in values {
            let Some(text) = text(bytes) else {
                contents.errors.push(format!("the value of {key:?} is not text"));
                continue;
            };
            if let Some((server, field)) = by_ending(key) {
                entries.entry(server.to_owned()).or_default().set(field, text);
            } else if let Some((id, field)) = by_beginning(key) {
                indirect.entry(id).or_default().set(field, text);
            } else {
                contents.errors.push(format!("Unknown secret key {key:?}"));
            }
        }
        for (id, Indirect { server, entry }) in indirect {
            match server.is_empty() {
                true => contents.errors.push(format!("Credentials did not have all required values: no server_{id}")),
                false if entry.is_complete() || !entries.contains_key(&server) => drop(entries.insert(server, entry)),
                false => contents.errors.push(format!("{INCOMPLETE} for server_{id}")),
            }
        }
        contents.add(entries);
        contents
    }

    fn add(&mut self, entries: BTreeMap<String, Entry>) {
        if entries.is_empty() && self.errors.is_empty() {
            self.errors.push(INCOMPLETE.to_owned());
        }
        for (server, entry) in entries {
            match entry.login() {
                Some(login) => drop(self.logins.insert(unbracketed(&server).to_owned(), login)),
                None => self.errors.push(format!("{INCOMPLETE} for server {server:?}")),
            }
        }
    }
}

impl Entry {
    fn set(&mut self, field: Field, text: &str) {
        match field {
            Field::User => self.user = text.to_owned(),
            Field::Password => self.password = text.into(),
            Field::Url => self.url = text.to_owned(),
            Field::Token => self.token = text.into(),
            Field::Server => {}
        }
    }

    fn is_complete(&self) -> bool {
        !self.user.is_empty() && !self.password.is_empty()
    }

    // upstream: a session manager takes precedence over a user.
    fn login(self) -> Option<Login> {
        if self.url.is_empty() {
            return Login::with_password(&self.user, &self.password);
        }
        let token = (!self.token.is_empty()).then_some(self.token);
        Some(Login::SharedSession { url: self.url, token })
    }
}

impl Indirect {
    fn set(&mut self, field: Field, text: &str) {
        match field {
            Field::Server => self.server = text.to_owned(),
            other => self.entry.set(other, text),
        }
    }
}

/// Returns the address without brackets, which configurations and Secrets may have or not.
pub(super) fn unbracketed(server: &str) -> &str {
    server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(server)
}

// upstream: the dot is not required, so the key `password` belongs to a server of that name.
fn by_ending(key: &str) -> Option<(&str, Field)> {
    let (ending, field) = ENDINGS.into_iter().find(|(ending, _)| key.ends_with(ending))?;
    let server = key.split(&format!(".{ending}")).next()?;
    (!server.is_empty()).then_some((server, field))
}

fn by_beginning(key: &str) -> Option<(&str, Field)> {
    let found = BEGINNINGS.into_iter().find_map(|(beginning, field)| Some((key.strip_prefix(beginning)?, field)));
    found.filter(|(id, _)| !id.is_empty())
}

/// Returns the text without a line break at the end, which values from files have. `None` if it cannot be part of a request.
fn text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    let is_forbidden = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
    (!text.contains(is_forbidden)).then_some(text)
}
