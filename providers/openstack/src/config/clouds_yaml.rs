//! clouds.yaml, with secure.yaml over it and clouds-public.yaml below: what `[Global]` leaves empty.
//!
//! ```text
//!  [Global]  >  secure.yaml  >  clouds.yaml  >  clouds-public.yaml, where the entry names a profile
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowline_config::table::{Key, Settings, View};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment, Secret, nearest};

use super::declaration::{CLOUDS, CloudKeys as C, GlobalKeys as K, Variables, clouds_table, fills};
use super::fields::Fields;

/// What the files say of one cloud.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entry {
    /// What fills `[Global]`, by its keys there, with a problem that says where it stands.
    texts: BTreeMap<Key, (Secret, ConfigError)>,
    /// `verify`.
    pub(super) verify: Option<bool>,
    /// The files that it was read from, the main one first.
    pub(super) files: Vec<PathBuf>,
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

    /// Reads all files and puts the entry together, strongest first: what is there stays.
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
                let message = format!("there is no clouds-public.yaml with its profile {profile:?}");
                return Err(ConfigError::file(path, None, message).field(format!("clouds.{name}")).into());
            };
            let clouds = read(&public)?;
            let problem = || ConfigError::file(&public, None, format!("there is no cloud {profile:?}"));
            entry.add(&named(&clouds, profile).ok_or_else(|| problem().field("public-clouds"))?);
            entry.files.push(public);
        }
        Ok(entry)
    }

    fn no_file(&self) -> ConfigError {
        let problem = match &self.file {
            Some(path) => {
                ConfigError::file(path, None, "there is no such file, and no clouds.yaml at the usual places")
            }
            None => ConfigError::new("use-clouds is set, and there is no clouds.yaml"),
        };
        problem.hint("name it with clouds-file in [Global], or put it into ~/.config/openstack or /etc/openstack")
    }

    /// The cloud that is meant, with its name.
    fn choose<'a>(&self, path: &Path, clouds: Vec<(&'a str, View<'a>)>) -> Result<(&'a str, View<'a>), ConfigErrors> {
        let names = || clouds.iter().map(|(name, _)| *name);
        let known = names().collect::<Vec<_>>().join(", ");
        let problem = |message: String| ConfigError::file(path, None, message).field("clouds");
        match (&self.cloud, clouds.as_slice()) {
            (None, [only]) => Ok(*only),
            (None, _) => {
                let message = format!("it does not say which of its {} clouds is meant", clouds.len());
                let hint = format!("set cloud in [Global], or OS_CLOUD, to one of {known}");
                Err(problem(message).hint(hint).into())
            }
            (Some(wanted), _) => clouds.iter().find(|(name, _)| name == wanted).copied().ok_or_else(|| {
                let near = nearest(wanted, names()).map(|near| format!("did you mean {near}?"));
                problem(format!("there is no cloud {wanted:?}"))
                    .hint(near.unwrap_or(format!("there are {known}")))
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
                self.texts.entry(key).or_insert((value, cloud.problem(&here, "")));
            }
        }
    }

    /// Fills what is empty, unless `[Global]` says it in another way.
    pub(super) fn fill(&self, fields: &mut Fields) {
        let own = fields.clone();
        for (key, (value, _)) in self.texts.iter().filter(|(key, _)| !is_said_otherwise(key, &own)) {
            fields.fill(*key, value.clone());
        }
    }

    /// A problem with what came from here for a key of `[Global]`.
    pub(super) fn problem(&self, key: Key, message: &str) -> Option<ConfigError> {
        self.texts.get(&key).map(|(_, place)| ConfigError { message: message.to_owned(), ..place.clone() })
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
