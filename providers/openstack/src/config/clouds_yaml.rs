//! clouds.yaml, secure.yaml and clouds-public.yaml, which fill empty keys of `[Global]`.
//!
//! ```text
//!  [Global]  >  secure.yaml  >  clouds.yaml  >  clouds-public.yaml, if the entry has a profile
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowline_config::table::{Key, Settings, View};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment, Secret, nearest};

use super::declaration::{CLOUDS, CloudKeys as C, GlobalKeys as K, Variables, clouds_table, fills};
use super::fields::Fields;

/// Entry of one cloud, merged from the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entry {
    /// Values for keys of `[Global]`, each with an error that has its location.
    texts: BTreeMap<Key, (Secret, ConfigError)>,
    /// `verify`.
    pub(super) verify: Option<bool>,
    /// Files that it was read from, clouds.yaml first.
    pub(super) files: Vec<PathBuf>,
}

/// Name of the cloud, and where to search for the files.
pub(super) struct Search {
    /// `clouds-file`, by default `OS_CLIENT_CONFIG_FILE`.
    pub(super) file: Option<PathBuf>,
    /// `cloud`, by default `OS_CLOUD`.
    pub(super) cloud: Option<String>,
    folders: Vec<PathBuf>,
}

impl Search {
    /// Reads the keys of `[Global]` and the environment.
    pub(super) fn new(fields: &Fields, variables: Variables) -> Search {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let choose = |key, variable| fields.get(key).map(str::to_owned).or_else(|| given(variable));
        let home = given(variables.home).map(|home| Path::new(&home).join(".config/openstack"));
        let folders = [Some(PathBuf::new()), home, Some(PathBuf::from("/etc/openstack"))];
        Search {
            file: choose(K::clouds_file, variables.clouds_file).map(PathBuf::from),
            cloud: choose(K::cloud, variables.cloud),
            folders: folders.into_iter().flatten().collect(),
        }
    }

    /// Returns the first existing file: each name in all folders before the next name.
    fn find(&self, names: [&str; 2]) -> Option<PathBuf> {
        let mut paths = names.into_iter().flat_map(|name| self.folders.iter().map(move |folder| folder.join(name)));
        paths.find(|path| path.exists())
    }

    /// Returns the path of clouds.yaml.
    // upstream: a configured file that does not exist is ignored.
    fn main_file(&self) -> Option<PathBuf> {
        let named = self.file.clone().filter(|path| path.exists());
        named.or_else(|| self.find(["clouds.yaml", "clouds.yml"]))
    }

    /// Reads all files and merges the entry, highest precedence first: existing values stay.
    pub(super) fn read(&self) -> Result<Entry, ConfigErrors> {
        let Some(path) = self.main_file() else { return Err(self.no_file().into()) };
        let settings = read(&path)?;
        let (name, cloud) = self.choose(&path, settings.views(CLOUDS))?;
        let mut entry = Entry { files: vec![path.clone()], ..Entry::default() };
        if let Some(path) = self.find(["secure.yaml", "secure.yml"]) {
            let secure = read(&path)?;
            named(&secure, name).into_iter().for_each(|cloud| entry.add(&cloud));
            entry.files.push(path);
        }
        entry.add(&cloud);
        let profile = [C::profile, C::cloud].map(|key| cloud.get::<String>(&key));
        if let Some(profile) = profile.iter().find(|name| !name.is_empty()) {
            let Some(public) = self.find(["clouds-public.yaml", "clouds-public.yml"]) else {
                let message = format!("found no clouds-public.yaml with its profile {profile:?}");
                return Err(ConfigError::file(path, None, message).field(format!("clouds.{name}")).into());
            };
            let clouds = read(&public)?;
            let error = || ConfigError::file(&public, None, format!("no such cloud: {profile:?}"));
            entry.add(&named(&clouds, profile).ok_or_else(|| error().field("public-clouds"))?);
            entry.files.push(public);
        }
        Ok(entry)
    }

    fn no_file(&self) -> ConfigError {
        let error = match &self.file {
            Some(path) => ConfigError::file(path, None, "no such file, and no clouds.yaml at the default locations"),
            None => ConfigError::new("use-clouds is set, and no clouds.yaml was found"),
        };
        error.hint("set clouds-file in [Global], or put it into ~/.config/openstack or /etc/openstack")
    }

    /// Returns the selected cloud with its name.
    fn choose<'a>(&self, path: &Path, clouds: Vec<(&'a str, View<'a>)>) -> Result<(&'a str, View<'a>), ConfigErrors> {
        let names = || clouds.iter().map(|(name, _)| *name);
        let known = names().collect::<Vec<_>>().join(", ");
        let error = |message: String| ConfigError::file(path, None, message).field("clouds");
        match (&self.cloud, clouds.as_slice()) {
            (None, [only]) => Ok(*only),
            (None, _) => {
                let message = format!("it has {} clouds, and none is selected", clouds.len());
                let hint = format!("set cloud in [Global], or OS_CLOUD, to one of {known}");
                Err(error(message).hint(hint).into())
            }
            (Some(wanted), _) => clouds.iter().find(|(name, _)| name == wanted).copied().ok_or_else(|| {
                let near = nearest(wanted, names()).map(|near| format!("did you mean {near}?"));
                error(format!("no such cloud: {wanted:?}"))
                    .hint(near.unwrap_or(format!("known clouds are {known}")))
                    .into()
            }),
        }
    }
}

fn read(path: &Path) -> Result<Settings, ConfigErrors> {
    clouds_table().read(Some(&ConfigFile::read(path)?), &Environment::default())
}

fn named<'a>(settings: &'a Settings, name: &str) -> Option<View<'a>> {
    settings.views(CLOUDS).into_iter().find(|(own, _)| *own == name).map(|(_, view)| view)
}

impl Entry {
    fn add(&mut self, cloud: &View<'_>) {
        self.verify = self.verify.or(cloud.get(&C::verify));
        for (here, key) in fills() {
            let value: Secret = cloud.get(&here);
            if !value.is_empty() {
                self.texts.entry(key).or_insert((value, cloud.error(&here, "")));
            }
        }
    }

    /// Fills empty keys, unless `[Global]` sets an alternative.
    pub(super) fn fill(&self, fields: &mut Fields) {
        let own = fields.clone();
        for (key, (value, _)) in self.texts.iter().filter(|(key, _)| !is_set_otherwise(key, &own)) {
            fields.fill(*key, value.clone());
        }
    }

    /// Returns an error about a value that came from here for a key of `[Global]`.
    pub(super) fn error(&self, key: Key, message: &str) -> Option<ConfigError> {
        self.texts.get(&key).map(|(_, place)| ConfigError { message: message.to_owned(), ..place.clone() })
    }
}

/// Alternative keys; the first one that is set wins.
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

/// Returns whether `[Global]` sets an alternative: a project by name there wins over the ID of another one here.
fn is_set_otherwise(key: &Key, own: &Fields) -> bool {
    let of_key = ALTERNATIVES.iter().filter(|ways| ways.iter().any(|way| way.contains(key)));
    of_key.flat_map(|ways| *ways).any(|way| !way.contains(key) && own.has_any(way))
}
