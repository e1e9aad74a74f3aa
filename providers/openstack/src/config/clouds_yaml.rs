//! clouds.yaml, with secure.yaml over it and clouds-public.yaml below: what `[Global]` leaves empty.
//!
//! ```text
//!  [Global]  >  secure.yaml  >  clouds.yaml  >  clouds-public.yaml, where the entry names a profile
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowline_config::table::Key;
use bowline_config::{ConfigFile, Environment, Problem, Problems, Secret, nearest};
use serde::Deserialize;

use super::declaration::GlobalKeys as K;
use super::fields::Fields;

/// What the files say of one cloud.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entry {
    /// What fills `[Global]`, by the keys of both.
    texts: BTreeMap<Key, (&'static str, Secret)>,
    /// `verify`.
    pub(super) verify: Option<bool>,
    /// The files that it was read from, the main one first.
    pub(super) files: Vec<PathBuf>,
    /// Its name.
    pub(super) name: String,
}

/// Which cloud, and where to look for it.
pub(super) struct Search {
    /// `clouds-file`, or else `OS_CLIENT_CONFIG_FILE`.
    pub(super) file: Option<PathBuf>,
    /// `cloud`, or else `OS_CLOUD`.
    pub(super) cloud: Option<String>,
    folders: Vec<PathBuf>,
}

impl Search {
    /// By the keys of `[Global]` and by the environment.
    pub(super) fn new(fields: &Fields, environment: &Environment) -> Search {
        let choose = |key, variable| fields.get(key).or_else(|| environment.get(variable)).map(str::to_owned);
        let home = environment.get("HOME").map(|home| Path::new(home).join(".config/openstack"));
        let folders = [Some(PathBuf::new()), home, Some(PathBuf::from("/etc/openstack"))];
        Search {
            file: choose(K::clouds_file, "OS_CLIENT_CONFIG_FILE").map(PathBuf::from),
            cloud: choose(K::cloud, "OS_CLOUD"),
            folders: folders.into_iter().flatten().collect(),
        }
    }

    /// The first that exists, of each name in all folders before the next name.
    fn find(&self, names: [&str; 2]) -> Option<PathBuf> {
        let mut paths = names.into_iter().flat_map(|name| self.folders.iter().map(move |folder| folder.join(name)));
        paths.find(|path| path.exists())
    }

    /// Where clouds.yaml is.
    // upstream: a file that is named and does not exist is passed over.
    fn main_file(&self) -> Option<PathBuf> {
        let named = self.file.clone().filter(|path| path.exists());
        named.or_else(|| self.find(["clouds.yaml", "clouds.yml"]))
    }

    /// Reads all files and puts the entry together.
    pub(super) fn read(&self) -> Result<Entry, Problems> {
        let Some(path) = self.main_file() else { return Err(self.no_file().into()) };
        let clouds: Clouds = ConfigFile::read(&path)?.yaml()?;
        let (name, cloud) = self.choose(&path, clouds.clouds)?;
        let mut merge = Merge { entry: Entry { name, ..Entry::default() } };
        if let Some(secure) = self.find(["secure.yaml", "secure.yml"]) {
            let mut clouds: Clouds = ConfigFile::read(&secure)?.yaml()?;
            merge.add(clouds.clouds.remove(&merge.entry.name).unwrap_or_default());
            merge.entry.files.push(secure);
        }
        let profile = [&cloud.profile, &cloud.cloud].into_iter().flatten().find(|name| !name.is_empty()).cloned();
        merge.add(cloud);
        merge.entry.files.insert(0, path);
        if let Some(profile) = profile {
            let (public, cloud) = self.public(&merge.entry, &profile)?;
            merge.add(cloud);
            merge.entry.files.push(public);
        }
        Ok(merge.entry)
    }

    fn no_file(&self) -> Problem {
        let problem = match &self.file {
            Some(path) => Problem::file(path, None, "there is no such file, and no clouds.yaml at the usual places"),
            None => Problem::new("use-clouds is set, and there is no clouds.yaml"),
        };
        problem.hint("name it with clouds-file in [Global], or put it into ~/.config/openstack or /etc/openstack")
    }

    fn choose(&self, path: &Path, mut clouds: BTreeMap<String, Cloud>) -> Result<(String, Cloud), Problems> {
        let known = clouds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let Some(name) = &self.cloud else {
            let count = clouds.len();
            let only = clouds.pop_first().filter(|_| count == 1);
            let problem = Problem::file(path, None, format!("it does not say which of its {count} clouds is meant"));
            let hint = format!("set cloud in [Global], or OS_CLOUD, to one of {known}");
            return only.ok_or_else(|| problem.field("clouds").hint(hint).into());
        };
        let near = nearest(name, clouds.keys().map(String::as_str)).map(|near| format!("did you mean {near}?"));
        clouds.remove_entry(name).ok_or_else(|| {
            let problem = Problem::file(path, None, format!("there is no cloud {name:?}")).field("clouds");
            problem.hint(near.unwrap_or(format!("there are {known}"))).into()
        })
    }

    fn public(&self, entry: &Entry, profile: &str) -> Result<(PathBuf, Cloud), Problems> {
        let Some(path) = self.find(["clouds-public.yaml", "clouds-public.yml"]) else {
            let file = entry.files.first().cloned().unwrap_or_default();
            let problem =
                Problem::file(file, None, format!("there is no clouds-public.yaml with its profile {profile:?}"));
            return Err(problem.field(format!("clouds.{}", entry.name)).into());
        };
        let mut clouds: PublicClouds = ConfigFile::read(&path)?.yaml()?;
        let problem = || Problem::file(&path, None, format!("there is no cloud {profile:?}")).field("public-clouds");
        let cloud = clouds.clouds.remove(profile).ok_or_else(problem)?;
        Ok((path, cloud))
    }
}

impl Entry {
    /// Fills what is empty, unless `[Global]` says it in another way.
    pub(super) fn fill(&self, fields: &mut Fields) {
        let own = fields.clone();
        for (key, (_, value)) in self.texts.iter().filter(|(key, _)| !is_said_otherwise(key, &own)) {
            fields.fill(*key, value.clone());
        }
    }

    /// Whether it has something for a key of `[Global]`.
    pub(super) fn has(&self, key: Key) -> bool {
        self.texts.contains_key(&key)
    }

    /// A problem with what came from here for a key of `[Global]`.
    pub(super) fn problem(&self, key: Key, message: impl Into<String>) -> Problem {
        let here = self.texts.get(&key).map_or(key.name, |(here, _)| here);
        let file = self.files.first().cloned().unwrap_or_default();
        Problem::file(file, None, message).field(format!("clouds.{}.{here}", self.name))
    }
}

/// Ways to say one thing, of which the first wins that is there.
const ALTERNATIVES: [&[&[Key]]; 8] = [
    &[&[K::user_id], &[K::username]],
    &[&[K::tenant_id], &[K::tenant_name]],
    &[&[K::domain_id], &[K::domain_name]],
    &[&[K::user_domain_id], &[K::user_domain_name]],
    &[&[K::tenant_domain_id], &[K::tenant_domain_name]],
    &[&[K::ca_file], &[K::cafilecontents]],
    &[&[K::application_credential_id], &[K::application_credential_name]],
    &[
        &[K::token],
        &[K::password],
        &[K::application_credential_id, K::application_credential_name, K::application_credential_secret],
    ],
];

/// `[Global]` wins, always: a project of its own by name is not to lose to the ID of another one here.
fn is_said_otherwise(key: &Key, own: &Fields) -> bool {
    let of_key = ALTERNATIVES.iter().filter(|ways| ways.iter().any(|way| way.contains(key)));
    of_key.flat_map(|ways| *ways).any(|way| !way.contains(key) && own.has_any(way))
}

/// Strongest first: what is there stays.
struct Merge {
    entry: Entry,
}

impl Merge {
    fn add(&mut self, cloud: Cloud) {
        self.entry.verify = self.entry.verify.or(cloud.verify);
        for (key, here, value) in cloud.texts() {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                self.entry.texts.entry(key).or_insert((here, value));
            }
        }
    }
}

// ---- the files

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Clouds {
    clouds: BTreeMap<String, Cloud>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PublicClouds {
    #[serde(rename = "public-clouds")]
    clouds: BTreeMap<String, Cloud>,
}

// upstream: trust_id, default_domain, system_scope and regions are not taken.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cloud {
    cloud: Option<String>,
    profile: Option<String>,
    auth: Option<Auth>,
    region_name: Option<Secret>,
    endpoint_type: Option<Secret>,
    interface: Option<Secret>,
    cacert: Option<Secret>,
    cert: Option<Secret>,
    key: Option<Secret>,
    verify: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth_url: Option<Secret>,
    user_id: Option<Secret>,
    username: Option<Secret>,
    password: Option<Secret>,
    project_id: Option<Secret>,
    project_name: Option<Secret>,
    domain_id: Option<Secret>,
    domain_name: Option<Secret>,
    project_domain_id: Option<Secret>,
    project_domain_name: Option<Secret>,
    user_domain_id: Option<Secret>,
    user_domain_name: Option<Secret>,
    application_credential_id: Option<Secret>,
    application_credential_name: Option<Secret>,
    application_credential_secret: Option<Secret>,
    token: Option<Secret>,
}

type Text = (Key, &'static str, Option<Secret>);

impl Cloud {
    /// Each with its key in `[Global]` and the one that it has here.
    fn texts(self) -> Vec<Text> {
        let filled = |text: &Secret| !text.is_empty();
        let (endpoint_type, interface) = (self.endpoint_type.filter(filled), self.interface);
        let endpoint_type = match endpoint_type {
            Some(endpoint_type) => (K::os_endpoint_type, "endpoint_type", Some(endpoint_type)),
            None => (K::os_endpoint_type, "interface", interface),
        };
        let own = [
            (K::region, "region_name", self.region_name),
            endpoint_type,
            (K::ca_file, "cacert", self.cacert),
            (K::cert_file, "cert", self.cert),
            (K::key_file, "key", self.key),
        ];
        own.into_iter().chain(self.auth.unwrap_or_default().texts()).collect()
    }
}

impl Auth {
    fn texts(self) -> [Text; 16] {
        [
            (K::auth_url, "auth.auth_url", self.auth_url),
            (K::user_id, "auth.user_id", self.user_id),
            (K::username, "auth.username", self.username),
            (K::password, "auth.password", self.password),
            (K::tenant_id, "auth.project_id", self.project_id),
            (K::tenant_name, "auth.project_name", self.project_name),
            (K::domain_id, "auth.domain_id", self.domain_id),
            (K::domain_name, "auth.domain_name", self.domain_name),
            (K::tenant_domain_id, "auth.project_domain_id", self.project_domain_id),
            (K::tenant_domain_name, "auth.project_domain_name", self.project_domain_name),
            (K::user_domain_id, "auth.user_domain_id", self.user_domain_id),
            (K::user_domain_name, "auth.user_domain_name", self.user_domain_name),
            (K::application_credential_id, "auth.application_credential_id", self.application_credential_id),
            (K::application_credential_name, "auth.application_credential_name", self.application_credential_name),
            (
                K::application_credential_secret,
                "auth.application_credential_secret",
                self.application_credential_secret,
            ),
            (K::token, "auth.token", self.token),
        ]
    }
}
