//! A folder with credentials, and a vCenter that is reached with them.

use std::path::PathBuf;

use bowline_vsphere_simulator::vcenter::{PASSWORD, USER};

use crate::world::{World, configured};

/// A folder with credentials, which is deleted at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder with these files. No other test may use the name at the same time.
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let path = std::env::temp_dir().join(format!("bowline-vsphere-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder(path);
        files.iter().for_each(|(name, text)| folder.write(name, text));
        folder
    }

    /// Creates a folder with user and password of `vc-1`.
    pub(crate) fn with_password(name: &str) -> Folder {
        Folder::new(name, &[("vc-1.username", USER), ("vc-1.password", PASSWORD)])
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// One vCenter, whose credentials are in this folder. All its machines are in the zone `z1`.
    pub(crate) fn world(&self) -> World {
        let world = World::new();
        let datacenter = world.vcenter().find("Datacenter", "DC0").unwrap();
        world.vcenter().tag("k8s-region", "r1", &datacenter);
        world.vcenter().tag("k8s-zone", "z1", &datacenter);
        let global = format!("[Global]\nsecrets-directory = \"{}\"\n[VirtualCenter \"vc-1\"]\n", self.0.display());
        let config = format!("{global}[Labels]\nregion = k8s-region\nzone = k8s-zone\n");
        World { provider: configured(&world.vcenters, config), vcenters: world.vcenters }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
