//! The snapshot file: what survives, and what is said of one that is broken.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use bowline_core::{Address, AddressType};
use bowline_local::{CloudError, CloudOptions, LocalCloud, NewMachine};

/// A directory of this test's own, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("bowline-local-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cloud.json")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<LocalCloud, CloudError> {
    LocalCloud::open(CloudOptions { snapshot: Some(path.to_owned()), ..CloudOptions::default() })
}

fn machine(name: &str) -> NewMachine {
    NewMachine {
        name: name.to_owned(),
        zone: "z".to_owned(),
        addresses: vec![Address::new(AddressType::InternalIP, "10.0.0.9"), Address::new(AddressType::Hostname, "n")],
        labels: [("k".to_owned(), "v".to_owned())].into(),
        ..NewMachine::default()
    }
}

#[test]
fn machines_survive_a_restart_and_ids_are_not_given_again() {
    let scratch = Scratch::new("restart");
    let cloud = open(&scratch.file()).unwrap();
    for name in ["a", "b", "c"] {
        cloud.add(machine(name)).unwrap();
    }
    cloud.stop("i-0001").unwrap();
    cloud.change("i-0002", |spec| spec.region = "r".to_owned()).unwrap();
    cloud.delete("i-0003").unwrap();
    let again = open(&scratch.file()).unwrap();
    assert_eq!(again.machines(), cloud.machines());
    assert_eq!(again.add(machine("d")).unwrap().spec.id, "i-0004");
    let files: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["cloud.json"]);
}

#[test]
fn a_broken_snapshot_is_an_error_that_says_where() {
    let scratch = Scratch::new("broken");
    let one = r#"{"version":1,"lastId":1,"machines":[{"name":"a","id":"i-0001","state":"running"}]}"#;
    std::fs::write(scratch.file(), one).unwrap();
    assert_eq!(open(&scratch.file()).unwrap().machines().len(), 1);
    let table = [
        (String::new(), "line 1 column 0"),
        (one[..40].to_owned(), "line 1 column 40"),
        (one.replace(",\"machines", ",\n\"machine"), "line 2 column"),
        (one.replace("running", "asleep"), "line 1 column"),
        (one.replace("\"name\":\"a\",", ""), "the name \"\""),
        (one.replace("i-0001", "a/b"), "the ID \"a/b\""),
        (one.replace(":1,\"lastId", ":3,\"lastId"), "version 3"),
        (one.replace(":1,\"lastId", ":0,\"lastId"), "version 0"),
        (one.replace("]}", r#"],"lastBalancerId":18446744073709551615}"#), "lastBalancerId"),
        (one.replace("]}", r#"],"balancers":[{"id":"lb-1"}]}"#), "line 1 column"),
        (one.replace("lastId\":1", "lastId\":18446744073709551615"), "lastId"),
        (one.replace("[{", r#"[{"name":"b","id":"i-0001","state":"stopped"},{"#), "already"),
        ("\u{feff}null".to_owned(), "line 1 column"),
    ];
    for (text, says) in table {
        std::fs::write(scratch.file(), &text).unwrap();
        let error = open(&scratch.file()).err().unwrap();
        assert!(matches!(&error, CloudError::Snapshot(path, _) if *path == scratch.file()), "{text}: {error:?}");
        assert!(error.to_string().contains(says), "{text}: {error}");
        assert_eq!(std::fs::read_to_string(scratch.file()).unwrap(), text, "it is left as it was");
    }
}

#[test]
fn what_cannot_be_saved_does_not_happen() {
    let scratch = Scratch::new("unsaved");
    let folder = scratch.0.join("gone");
    std::fs::create_dir_all(&folder).unwrap();
    let cloud = open(&folder.join("cloud.json")).unwrap();
    cloud.add(machine("a")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(matches!(cloud.add(machine("b")), Err(CloudError::Snapshot(..))));
    assert!(matches!(cloud.delete("i-0001"), Err(CloudError::Snapshot(..))));
    assert_eq!(cloud.machines().len(), 1);
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(cloud.add(machine("b")).unwrap().spec.id, "i-0002");
}

#[test]
fn a_snapshot_that_is_a_folder_is_an_error() {
    let scratch = Scratch::new("folder");
    assert!(matches!(open(&scratch.0), Err(CloudError::Snapshot(..))));
}
