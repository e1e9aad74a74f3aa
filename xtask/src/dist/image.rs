//! OCI archive of the container image: an image layout in a tar file.
//!
//! `deploy/image/build --root-only` lays out the files of the image, and `deploy/image/Containerfile` names its user and entry point.
//! An image of one layer is three JSON documents and a tar file, so that no builder is needed, whose version would be
//! part of the result.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::archive::{self, Entry};
use super::digest::sha256;
use super::source::Source;
use super::text;

const CONTAINERFILE: &str = "deploy/image/Containerfile";

/// Returns the archive of an image with this program.
pub(super) fn archive(source: &Source, program: &Path) -> anyhow::Result<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("bowline-image-{}", std::process::id()));
    let files = lay_out(source, program, &folder).and_then(|()| archive::read(&folder));
    let _ = std::fs::remove_dir_all(&folder);
    layout(source, &files?)
}

/// Writes the files of the image to a folder.
fn lay_out(source: &Source, program: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut script = Command::new(source.root.join("deploy/image/build"));
    let program = std::path::absolute(program)?;
    script.arg("--binary").arg(program).arg("--root-only").arg(folder);
    let output = script.output().context("cannot run deploy/image/build")?;
    if !output.status.success() {
        bail!("deploy/image/build: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Blobs of an image layout, by digest.
#[derive(Default)]
struct Blobs(Vec<Entry>);

impl Blobs {
    /// Adds a blob, and returns its descriptor.
    fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let (digest, size) = (sha256(&content), content.len());
        self.0.push(text(&format!("blobs/sha256/{digest}"), 0o644, content));
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
    }
}

fn layout(source: &Source, files: &[Entry]) -> anyhow::Result<Vec<u8>> {
    let layer = archive::tar(files, source.time)?;
    let mut blobs = Blobs::default();
    let config = config(source, &sha256(&layer))?;
    let config = blobs.add("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
    let layer = blobs.add("application/vnd.oci.image.layer.v1.tar+gzip", archive::gzip(&layer)?);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": labels(source),
    });
    let mut manifest = blobs.add(MANIFEST, manifest.to_string().into_bytes());
    let name = format!("bowline:{}", source.version);
    manifest["annotations"] = json!({
        // The name for containerd, as a kubelet completes it.
        "io.containerd.image.name": format!("docker.io/library/{name}"),
        "org.opencontainers.image.ref.name": name,
    });
    manifest["platform"] = json!({"architecture": source.architecture, "os": "linux"});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]});
    let mut entries = blobs.0;
    entries.push(text("oci-layout", 0o644, r#"{"imageLayoutVersion":"1.0.0"}"#));
    entries.push(text("index.json", 0o644, index.to_string()));
    archive::tar(&entries, source.time)
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn config(source: &Source, layer: &str) -> anyhow::Result<Value> {
    let created = source.timestamp()?;
    let entrypoint: Value = serde_json::from_str(&instruction(source, "ENTRYPOINT")?)?;
    Ok(json!({
        "created": created, "architecture": source.architecture, "os": "linux",
        "config": {"User": instruction(source, "USER")?, "Entrypoint": entrypoint, "Labels": labels(source)},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        "history": [{"created": created, "created_by": format!("cargo xtask dist ({CONTAINERFILE})")}],
    }))
}

/// Returns the argument of an instruction of the Containerfile.
fn instruction(source: &Source, name: &str) -> anyhow::Result<String> {
    let file = source.text(CONTAINERFILE)?;
    let argument = file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    argument.map(str::to_owned).with_context(|| format!("{CONTAINERFILE} has no {name}"))
}

fn labels(source: &Source) -> Value {
    json!({
        "org.opencontainers.image.title": "bowline",
        "org.opencontainers.image.description": "A cloud controller manager for Kubernetes",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.revision": source.commit,
    })
}
