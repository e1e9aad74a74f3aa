//! `cargo xtask dist`: what a release consists of, built on this machine.
//!
//! ```text
//!  sources ──► build ──► program ──┬──► archive, with CA certificates ──► OCI image
//!                                  ├──► Debian package
//!  cargo tree, Cargo.lock ─────────┼──► SBOM
//!  deploy/ ────────────────────────┴──► chart, manifests            each in SHA256SUMS
//! ```
//!
//! The files depend on the commit, the Rust toolchain, the C library and the CA certificates of the machine, and on nothing else:
//! neither on the folder nor on the time. `--verify` builds them a second time from a copy of the sources in another folder, and compares.
//! Every format is written here and not by `buildah`, `helm` or `dpkg-deb`: none of them has to be installed, and none
//! records its own version or the current time.

mod archive;
mod build;
mod deb;
mod digest;
mod image;
mod sbom;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use archive::Entry;
use source::Source;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder that receives the files. Default: `dist` in the target folder.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Static program to package, instead of a new build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Cargo features of the program.
    #[arg(long, value_name = "LIST", default_value = "providers,lb-agent,console")]
    features: String,
    /// Build everything a second time, from a copy of the sources in another folder, and fail if a file differs.
    #[arg(long)]
    verify: bool,
}

/// Builds the release, and prints its files.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let target = build::target_folder(root);
    let output = options.output.clone().unwrap_or_else(|| target.join("dist"));
    let release = Release::new(Source::read(root)?, options);
    let sums = release.write(&target.join("dist-build"), &output)?;
    print!("{sums}");
    println!("{}: SHA-256 of SHA256SUMS is {}", output.display(), digest::sha256(sums.as_bytes()));
    if options.verify { release.verify(&target.join("dist-verify"), &sums) } else { Ok(()) }
}

/// A release: its sources, and how its program is built.
struct Release<'a> {
    source: Source,
    options: &'a Options,
}

/// A file of the release.
struct Artefact {
    name: String,
    content: Vec<u8>,
    is_program: bool,
}

impl Artefact {
    fn data(name: String, content: Vec<u8>) -> Artefact {
        Artefact { name, content, is_program: false }
    }
}

impl<'a> Release<'a> {
    fn new(source: Source, options: &'a Options) -> Release<'a> {
        Release { source, options }
    }

    /// Builds in one folder and writes the files to another; returns the content of SHA256SUMS.
    fn write(&self, build: &Path, output: &Path) -> anyhow::Result<String> {
        let program = match &self.options.binary {
            Some(program) => program.clone(),
            None => build::program(&self.source, &self.options.features, build)?,
        };
        let artefacts = self.artefacts(&program)?;
        let _ = fs::remove_dir_all(output);
        fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
        for Artefact { name, content, is_program } in &artefacts {
            let path = output.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            source::set_mode(&path, if *is_program { 0o755 } else { 0o644 })?;
        }
        let sums = sums(&artefacts);
        fs::write(output.join("SHA256SUMS"), &sums)?;
        Ok(sums)
    }

    fn artefacts(&self, program: &Path) -> anyhow::Result<Vec<Artefact>> {
        let source = &self.source;
        let content = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        build::check_static(&content).with_context(|| program.display().to_string())?;
        let version = &source.version;
        let platform = format!("bowline-{version}-linux-{}", source.architecture);
        let components = sbom::components(source, &self.options.features)?;
        let agent = build::has_command(program, "lb-agent");
        Ok(vec![
            Artefact::data(format!("bowline-{version}.tgz"), self.chart()?),
            Artefact::data(format!("bowline-{version}-manifests.tar.gz"), self.manifests()?),
            Artefact::data(
                format!("{platform}.cdx.json"),
                sbom::document(source, &components, &digest::sha256(&content))?,
            ),
            Artefact::data(format!("{platform}.oci.tar"), image::archive(source, program)?),
            Artefact::data(
                format!("bowline_{version}_{}.deb", source.architecture),
                deb::package(source, &content, agent)?,
            ),
            Artefact { name: platform, content, is_program: true },
        ])
    }

    /// Packages the chart as `helm package` does.
    fn chart(&self) -> anyhow::Result<Vec<u8>> {
        let files = self.source.folder("deploy/chart/bowline")?;
        archive::tar_gz(&archive::below("bowline", files), self.source.time)
    }

    /// Packages the kustomize bases, the alerts and the dashboard.
    fn manifests(&self) -> anyhow::Result<Vec<u8>> {
        let mut files = Vec::new();
        for folder in ["kubernetes", "prometheus", "grafana"] {
            let name = format!("bowline-{}-manifests/{folder}", self.source.version);
            let mut below = self.source.folder(&format!("deploy/{folder}"))?;
            // The program of a release does not have the provider of the playground.
            below.retain(|file| !file.path.starts_with("local"));
            files.extend(archive::below(&name, below));
        }
        archive::tar_gz(&files, self.source.time)
    }

    /// Builds from a copy of the sources in a folder whose path has another length, and compares.
    fn verify(&self, scratch: &Path, expected: &str) -> anyhow::Result<()> {
        let _ = fs::remove_dir_all(scratch);
        let copy = self.source.copy_to(&scratch.join("another/folder"))?;
        let sums = Release::new(copy, self.options).write(&scratch.join("build"), &scratch.join("output"))?;
        if let Some(difference) = difference(expected, &sums) {
            bail!("the second build differs: {difference}; its files are in {}", scratch.join("output").display());
        }
        println!("verified: a second build from {} has the same SHA256SUMS", scratch.display());
        fs::remove_dir_all(scratch).with_context(|| format!("cannot remove {}", scratch.display()))
    }
}

/// Formats checksums as `sha256sum --check` reads them.
fn sums(artefacts: &[Artefact]) -> String {
    artefacts.iter().map(|one| format!("{}  {}\n", digest::sha256(&one.content), one.name)).collect()
}

/// Returns the names of the files that differ, if any.
fn difference(first: &str, second: &str) -> Option<String> {
    let names = first.lines().filter(|line| !second.lines().any(|other| other == *line));
    let names: Vec<_> = names.filter_map(|line| line.split("  ").nth(1)).collect();
    if names.is_empty() && first == second { None } else { Some(names.join(", ")) }
}

/// Returns an entry for a text.
fn text(path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Entry {
    Entry::file(path, mode, content)
}
