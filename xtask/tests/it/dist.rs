//! Files of a release, with a script in place of the program, so that nothing is compiled.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

use crate::documentation::root;

/// Has all commands.
const PROGRAM: &str = "#!/bin/sh\nexit 0\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dist-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn dist(program: &Path, output: &Path, more: &[&str]) -> Output {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    // Its second build is in the target folder.
    xtask.env("CARGO_TARGET_DIR", output.with_file_name("target"));
    xtask.arg("dist").arg("--binary").arg(program).arg("--output").arg(output).args(more).output().unwrap()
}

/// Folder with a release, built once.
static RELEASE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = scratch("release");
    let (program, output) = (folder.join("program"), folder.join("output"));
    fs::write(&program, PROGRAM).unwrap();
    ok(Command::new("chmod").arg("755").arg(&program));
    let built = dist(&program, &output, &["--verify"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let printed = String::from_utf8(built.stdout).unwrap();
    assert!(printed.contains("verified: a second build"), "{printed}");
    output
});

fn file(end: &str) -> PathBuf {
    let mut files = fs::read_dir(&*RELEASE).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_str().unwrap().ends_with(end)).unwrap()
}

/// Runs a command and returns its output.
fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn skip(why: &str) {
    // Not `eprintln!`, which the runner captures.
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n").as_bytes()).unwrap();
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn extracted(archive: &Path, name: &str) -> PathBuf {
    let folder = scratch(name);
    ok(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&folder));
    folder
}

fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(text: impl AsRef<[u8]>) -> Value {
    serde_json::from_slice(text.as_ref()).unwrap()
}

#[test]
fn the_release_is_complete_and_its_checksums_are_correct() {
    let names: BTreeSet<String> =
        fs::read_dir(&*RELEASE).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let platform = format!("bowline-{VERSION}-linux-{ARCHITECTURE}");
    let expected = [
        "SHA256SUMS".to_owned(),
        format!("bowline-{VERSION}-manifests.tar.gz"),
        format!("bowline-{VERSION}.tgz"),
        format!("bowline_{VERSION}_{ARCHITECTURE}.deb"),
        format!("{platform}.cdx.json"),
        format!("{platform}.oci.tar"),
        platform,
    ];
    assert_eq!(names, BTreeSet::from(expected));
    ok(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&*RELEASE));
}

#[test]
fn the_image_is_an_oci_layout_whose_digests_are_correct() {
    let folder = extracted(&file(".oci.tar"), "image");
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = fs::read(folder.join("blobs/sha256").join(digest)).unwrap();
        assert_eq!((sha256(&content).as_str(), Some(content.len() as u64)), (digest, descriptor["size"].as_u64()));
        content
    };
    assert_eq!(json(fs::read(folder.join("oci-layout")).unwrap())["imageLayoutVersion"], "1.0.0");
    let index = json(fs::read(folder.join("index.json")).unwrap());
    let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
    assert_eq!(*name, format!("docker.io/library/bowline:{VERSION}"));
    let manifest = json(blob(&index["manifests"][0]));
    let config = json(blob(&manifest["config"]));
    assert_eq!((&config["architecture"], &config["os"]), (&ARCHITECTURE.into(), &"linux".into()));
    // As in the Containerfile.
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/bowline"]));
    let mut layer = Vec::new();
    flate2::read::GzDecoder::new(&*blob(&manifest["layers"][0])).read_to_end(&mut layer).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
    let archive = folder.join("layer.tar");
    fs::write(&archive, layer).unwrap();
    let listed = ok(Command::new("tar").arg("-tvf").arg(&archive));
    for (mode, path) in [
        ("-rwxr-xr-x root/root", " bowline\n"),
        ("drwxrwxrwt root/root", " tmp/\n"),
        ("-rw-r--r-- root/root", " etc/ssl/certs/ca-certificates.crt\n"),
        ("lrwxrwxrwx root/root", " bin/openstack-cloud-controller-manager -> /bowline\n"),
    ] {
        let has = listed.lines().any(|line| line.starts_with(mode) && format!("{line}\n").ends_with(path));
        assert!(has, "{mode}{path}: {listed}");
    }
    if is_installed("skopeo") {
        let name = format!("oci-archive:{}", file(".oci.tar").display());
        assert!(ok(Command::new("skopeo").args(["inspect", &name])).contains("org.opencontainers.image.version"));
    }
}

#[test]
fn the_debian_package_has_the_program_its_units_and_no_other_configuration() {
    if !is_installed("dpkg-deb") {
        return skip("no dpkg-deb");
    }
    let package = file(".deb");
    let fields = ok(Command::new("dpkg-deb").arg("--field").arg(&package));
    for field in ["Package: bowline", &format!("Version: {VERSION}"), &format!("Architecture: {ARCHITECTURE}")] {
        assert!(fields.contains(field), "{fields}");
    }
    let folder = scratch("deb");
    ok(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(&folder));
    assert_eq!(fs::read_to_string(folder.join("usr/bin/bowline")).unwrap(), PROGRAM);
    assert_eq!(fs::read_to_string(folder.join("DEBIAN/conffiles")).unwrap(), "/etc/default/bowline\n");
    ok(Command::new("md5sum").args(["--check", "--strict", "DEBIAN/md5sums"]).current_dir(&folder));
    for script in ["postinst", "prerm", "postrm"] {
        ok(Command::new("sh").arg("-n").arg(folder.join("DEBIAN").join(script)));
    }
    let accounts = fs::read_to_string(folder.join("usr/lib/sysusers.d/bowline.conf")).unwrap();
    for unit in ["bowline", "bowline-lb-agent"] {
        let text = fs::read_to_string(folder.join(format!("usr/lib/systemd/system/{unit}.service"))).unwrap();
        assert!(text.contains("\nExecStart=/usr/bin/bowline ") && text.contains(&format!("\nUser={unit}\n")), "{text}");
        assert!(accounts.contains(&format!("u {unit} ")), "{accounts}");
    }
}

#[test]
fn a_program_without_the_agent_is_packaged_without_its_unit() {
    if !is_installed("dpkg-deb") {
        return skip("no dpkg-deb");
    }
    let folder = scratch("without-agent");
    let (program, output) = (folder.join("program"), folder.join("output"));
    fs::write(&program, "#!/bin/sh\nexit 2\n").unwrap();
    ok(Command::new("chmod").arg("755").arg(&program));
    let built = dist(&program, &output, &[]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let package = output.join(format!("bowline_{VERSION}_{ARCHITECTURE}.deb"));
    let listed = ok(Command::new("dpkg-deb").arg("--contents").arg(package));
    assert!(listed.contains("/bowline.service") && !listed.contains("lb-agent"), "{listed}");
}

#[test]
fn a_program_that_needs_a_dynamic_linker_is_rejected() {
    let folder = scratch("dynamic");
    let built = dist(Path::new("/bin/true"), &folder.join("output"), &[]);
    let message = String::from_utf8_lossy(&built.stderr);
    assert!(!built.status.success() && message.contains("crt-static"), "{message}");
}

#[test]
fn the_sbom_lists_the_crates_of_the_program_with_their_licences() {
    let document = json(fs::read(file(".cdx.json")).unwrap());
    assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(document["metadata"]["component"]["hashes"][0]["content"], sha256(PROGRAM.as_bytes()));
    let components = document["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    for name in ["tokio", "rustls", "ring", "libmimalloc-sys", "bowline-openstack", "rust-std"] {
        assert!(named(name).is_some(), "{name}");
    }
    for name in ["bowline-playground", "bowline-local", "clap_derive", "proptest", "cc"] {
        assert!(named(name).is_none(), "{name} is not in the program");
    }
    let tokio = named("tokio").unwrap();
    assert!(tokio["purl"].as_str().unwrap().starts_with("pkg:cargo/tokio@1."), "{tokio}");
    assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
    let mut references: BTreeSet<&str> = components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
    assert_eq!(references.len(), components.len());
    references.insert(document["metadata"]["component"]["bom-ref"].as_str().unwrap());
    for component in components {
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    for dependency in document["dependencies"].as_array().unwrap() {
        let all = dependency["dependsOn"].as_array().unwrap().iter().chain([&dependency["ref"]]);
        all.for_each(|reference| assert!(references.contains(reference.as_str().unwrap()), "{reference}"));
    }
}

#[test]
fn the_chart_and_the_manifests_are_those_of_the_repository() {
    let folder = extracted(&file(&format!("bowline-{VERSION}.tgz")), "chart");
    let chart = root().join("deploy/chart/bowline");
    ok(Command::new("diff").arg("--recursive").arg(&chart).arg(folder.join("bowline")));
    let folder = extracted(&file("-manifests.tar.gz"), "manifests").join(format!("bowline-{VERSION}-manifests"));
    for path in ["kubernetes/openstack/kustomization.yaml", "prometheus/alerts.yaml", "grafana/bowline.json"] {
        let (packaged, own) =
            (fs::read(folder.join(path)).unwrap(), fs::read(root().join("deploy").join(path)).unwrap());
        assert_eq!(packaged, own, "{path}");
    }
    assert!(!folder.join("kubernetes/local").exists());
    let Some(helm) = std::env::var_os("BOWLINE_HELM") else { return skip("no helm") };
    ok(Command::new(helm).arg("lint").arg(file(&format!("bowline-{VERSION}.tgz"))));
}

#[test]
fn the_release_workflow_runs_the_command_without_actions_of_third_parties() {
    let text = fs::read_to_string(root().join(".github/workflows/release.yaml")).unwrap();
    let workflow: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(workflow["on"]["push"]["tags"], serde_json::json!(["v*"]));
    let steps = workflow["jobs"]["build"]["steps"].as_array().unwrap();
    let scripts: Vec<&str> = steps.iter().map(|step| step["run"].as_str().unwrap()).collect();
    assert!(scripts.contains(&"cargo xtask dist --verify --output dist"), "{scripts:?}");
    for script in scripts {
        ok(Command::new("bash").args(["-n", "-c", script]));
        // Secrets reach scripts through the environment only.
        assert!(!script.contains("${{"), "{script}");
    }
    // The scripts read these fields.
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(["\nversion = \"", "\nrust-version = \""].iter().all(|field| manifest.contains(field)));
}
