//! Debian package: an `ar` archive with a tar file of metadata and one of files.

use anyhow::Context as _;

use super::archive::{self, Entry, Kind};
use super::source::Source;
use super::text;

/// Scripts of the package, and files of it, in `deploy/debian/`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const CONFIGURATION: &str = "etc/default/bowline";
const AGENT_UNIT: &str = "deploy/lb-agent/bowline-lb-agent.service";

/// Returns the package; `has_agent`: the program has the command of the agent's unit.
pub(super) fn package(source: &Source, program: &[u8], has_agent: bool) -> anyhow::Result<Vec<u8>> {
    let files = files(source, program, has_agent)?;
    let control = control(source, &files)?;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", archive::tar_gz(&archive::below(".", control), source.time)?),
        ("data.tar.gz", archive::tar_gz(&archive::below(".", files), source.time)?),
    ];
    Ok(ar(&members, source.time))
}

/// Returns the installed files.
fn files(source: &Source, program: &[u8], has_agent: bool) -> anyhow::Result<Vec<Entry>> {
    let read = |path: &str| source.text(path);
    let doc = "usr/share/doc/bowline";
    let mut files = vec![
        Entry::file("usr/bin/bowline", 0o755, program),
        text("usr/lib/systemd/system/bowline.service", 0o644, read("deploy/systemd/bowline.service")?),
        text("usr/lib/sysusers.d/bowline.conf", 0o644, sysusers(source, has_agent)?),
        text(CONFIGURATION, 0o644, read("deploy/debian/default")?),
        // Configuration files of clouds contain credentials.
        Entry::folder("etc/bowline", 0o755),
        text(&format!("{doc}/copyright"), 0o644, read("deploy/debian/copyright")?),
        text(&format!("{doc}/NEWS.gz"), 0o644, archive::gzip(read("CHANGELOG.md")?.as_bytes())?),
        text(&format!("{doc}/changelog.gz"), 0o644, archive::gzip(changelog(source)?.as_bytes())?),
    ];
    if has_agent {
        files.push(text("usr/lib/systemd/system/bowline-lb-agent.service", 0o644, agent_unit(source)?));
        files.push(Entry::folder("etc/bowline-lb-agent", 0o755));
    }
    Ok(files)
}

/// Accounts of the units.
fn sysusers(source: &Source, has_agent: bool) -> anyhow::Result<String> {
    let all = source.text("deploy/debian/sysusers")?;
    let lines = all.lines().filter(|line| has_agent || !line.contains("bowline-lb-agent"));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// The agent's unit with the path of the package, and without the instructions to install it.
fn agent_unit(source: &Source) -> anyhow::Result<String> {
    let unit = source.text(AGENT_UNIT)?;
    let start = unit.find("[Unit]").with_context(|| format!("{AGENT_UNIT} has no [Unit]"))?;
    Ok(unit.get(start..).unwrap_or_default().replace("/usr/local/bin/bowline", "/usr/bin/bowline"))
}

/// Debian's own format of changes, with one entry; `NEWS.gz` has the changes.
fn changelog(source: &Source) -> anyhow::Result<String> {
    let time = jiff::Timestamp::from_second(i64::try_from(source.time)?)?;
    let time = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
    let Source { version, .. } = source;
    Ok(format!(
        "bowline ({version}) unstable; urgency=medium\n\n  * Release {version}; see NEWS.\n\n -- {MAINTAINER}  {time}\n"
    ))
}

const MAINTAINER: &str = "The Bowline authors <bowline@localhost>";

fn control(source: &Source, files: &[Entry]) -> anyhow::Result<Vec<Entry>> {
    let (Source { version, architecture, .. }, size) = (source, installed_size(files));
    let fields = format!(
        "Package: bowline\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nRecommends: ca-certificates, systemd\nSection: admin\nPriority: optional\n\
         Description: cloud controller manager for Kubernetes\n \
         Initialises Nodes from the cloud that they run on, manages load balancers of\n \
         Services and routes to Pods, and deletes Nodes whose machines are gone.\n"
    );
    let mut control = vec![
        text("control", 0o644, fields),
        text("conffiles", 0o644, format!("/{CONFIGURATION}\n")),
        text("md5sums", 0o644, md5sums(files)),
    ];
    for script in SCRIPTS {
        control.push(text(script, 0o755, source.text(&format!("deploy/debian/{script}"))?));
    }
    Ok(control)
}

/// Size in KiB as dpkg counts it: files are rounded up, and each other entry is one.
fn installed_size(files: &[Entry]) -> usize {
    let sizes = files.iter().map(|file| match &file.kind {
        Kind::File(content) => content.len().div_ceil(1024),
        _ => 1,
    });
    sizes.sum()
}

fn md5sums(files: &[Entry]) -> String {
    let of = |file: &Entry| match &file.kind {
        Kind::File(content) if file.path != CONFIGURATION => {
            Some(format!("{:x}  {}\n", md5::compute(content), file.path))
        }
        _ => None,
    };
    files.iter().filter_map(of).collect()
}

/// Returns an `ar` archive.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", content.len());
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(content);
        if content.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}
