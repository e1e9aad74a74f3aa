//! Instance types, with short names of operating systems.
//!
//! The names are part of the label `node.kubernetes.io/instance-type`, so they stay as the Go program writes them, with gaps: newer
//! systems are `unknown`.

use crate::vcenter::Machine;

/// Systems whose IDs are `NAMEGuest` and `NAME_64Guest`.
const BOTH: &[&str] = &[
    "asianux3",
    "asianux4",
    "centos6",
    "centos7",
    "debian4",
    "debian5",
    "debian6",
    "debian7",
    "debian8",
    "debian9",
    "debian10",
    "rhel3",
    "rhel4",
    "rhel5",
    "rhel6",
    "rhel7",
    "sles10",
    "sles11",
    "sles12",
    "oracleLinux6",
    "oracleLinux7",
    "solaris10",
];

/// Systems whose ID is `NAME_64Guest`.
const ONLY_64: &[&str] = &["asianux5", "asianux7", "rhel8", "rhel9", "rhel10", "solaris11"];

/// Systems whose ID is `NAMEGuest`.
const ONLY_32: &[&str] = &[
    "rhel2",
    "solaris6",
    "solaris7",
    "solaris8",
    "solaris9",
    "dos",
    "os2",
    "oes",
    "nld9",
    "sjds",
    "netware4",
    "netware5",
    "netware6",
    "openServer5",
    "openServer6",
    "eComStation",
    "eComStation2",
    "vmkernel",
    "vmkernel5",
    "vmkernel6",
    "vmkernel65",
    "fedora",
    "freebsd",
    "ubuntu",
    "opensuse",
    "suse",
    "mandriva",
    "mandrake",
    "oracleLinux",
    "centos",
    "sles",
    "darwin",
    "other",
];

/// All other IDs, without their suffix.
const SINGLE: &[(&str, &str)] = &[
    ("centos64", "centos64"),
    ("coreos64", "coreos"),
    ("darwin64", "darwin"),
    ("darwin10", "darwin"),
    ("darwin11", "darwin"),
    ("darwin10_64", "darwin"),
    ("darwin11_64", "darwin"),
    ("darwin12_64", "darwin"),
    ("darwin13_64", "darwin"),
    ("darwin14_64", "darwin"),
    ("darwin15_64", "darwin"),
    ("darwin16_64", "darwin"),
    ("fedora64", "fedora"),
    ("freebsd64", "freebsd"),
    ("genericLinux", "linux"),
    ("otherLinux", "linux"),
    ("otherLinux64", "linux"),
    ("other24xLinux", "linux"),
    ("other24xLinux64", "linux"),
    ("other26xLinux", "linux"),
    ("other26xLinux64", "linux"),
    ("other3xLinux", "linux"),
    ("other3xLinux64", "linux"),
    ("redhat", "rhel"),
    ("sles64", "sles64"),
    ("suse64", "suse"),
    ("opensuse64", "opensuse"),
    ("oracleLinux64", "oracleLinux"),
    ("ubuntu64", "ubuntu"),
    ("vmwarePhoton64", "photon"),
    ("mandriva64", "mandriva"),
    ("turboLinux", "turbolinux"),
    ("turboLinux64", "turbolinux"),
    ("unixWare7", "unixware7"),
    ("windows7", "win7"),
    ("windows7_64", "win7"),
    ("windows7Server64", "win7server"),
    ("windows8", "win8"),
    ("windows8_64", "win8"),
    ("windows8Server64", "win8server"),
    ("windows9", "win10"),
    ("windows9_64", "win10"),
    ("windows9Server64", "win10server"),
    ("windowsHyperV", "windowshyperv"),
    ("winLonghorn", "winlonghorn"),
    ("winLonghorn64", "winlonghorn"),
    ("winVista", "winvista"),
    ("winVista64", "winvista"),
    ("winXPHome", "winxphome"),
    ("winXPPro", "winxppro"),
    ("winXPPro64", "winxppro"),
    ("winNT", "winnt"),
    ("winMe", "winme"),
    ("winNetBusiness", "winnetbusiness"),
    ("winNetDatacenter", "winnetdatacenter"),
    ("winNetDatacenter64", "winnetdatacenter"),
    ("winNetEnterprise", "winnetenterprise"),
    ("winNetEnterprise64", "winnetenterprise"),
    ("winNetStandard", "winnetstandard"),
    ("winNetStandard64", "winnetstandard"),
    ("winNetWeb", "winnetweb"),
    ("win2000AdvServ", "win2000advserv"),
    ("win2000Pro", "win2000pro"),
    ("win2000Serv", "win2000serv"),
    ("win31", "win31"),
    ("win95", "win95"),
    ("win98", "win98"),
];

/// Returns the short name of an operating system. The case of its ID matters.
fn short_name(id: &str) -> &str {
    const UNKNOWN: &str = "unknown";
    // The one ID that does not end with the suffix.
    if id == "otherGuest64" {
        return "other";
    }
    let Some(id) = id.strip_suffix("Guest") else { return UNKNOWN };
    if let Some((_, short)) = SINGLE.iter().find(|(single, _)| *single == id) {
        return short;
    }
    let is_known = match id.strip_suffix("_64") {
        Some(name) => BOTH.contains(&name) || ONLY_64.contains(&name),
        None => BOTH.contains(&id) || ONLY_32.contains(&id),
    };
    if is_known { id.strip_suffix("_64").unwrap_or(id) } else { UNKNOWN }
}

/// Returns the instance type of a machine.
pub(crate) fn instance_type(machine: &Machine) -> String {
    let Machine { cpus, memory_mb, os_id, .. } = machine;
    format!("vsphere-vm.cpu-{cpus}.mem-{}gb.os-{}", memory_mb / 1024, short_name(os_id))
}

#[cfg(test)]
mod tests {
    use super::short_name;

    /// VS-71
    #[test]
    fn an_operating_system_has_the_short_name_of_the_go_program() {
        let table = [
            ("ubuntu64Guest", "ubuntu"),
            ("ubuntuGuest", "ubuntu"),
            ("debian10_64Guest", "debian10"),
            ("debian10Guest", "debian10"),
            ("debian11_64Guest", "unknown"),
            ("rhel8_64Guest", "rhel8"),
            ("rhel8Guest", "unknown"),
            ("rhel2Guest", "rhel2"),
            ("rhel2_64Guest", "unknown"),
            ("solaris9Guest", "solaris9"),
            ("centosGuest", "centos"),
            ("centos64Guest", "centos64"),
            ("slesGuest", "sles"),
            ("sles64Guest", "sles64"),
            ("coreos64Guest", "coreos"),
            ("otherGuest", "other"),
            ("otherGuest64", "other"),
            ("other3xLinux64Guest", "linux"),
            ("other4xLinux64Guest", "unknown"),
            ("genericLinuxGuest", "linux"),
            ("vmwarePhoton64Guest", "photon"),
            ("windows9Server64Guest", "win10server"),
            ("windows2019srv_64Guest", "unknown"),
            ("netware5Guest", "netware5"),
            ("vmkernel65Guest", "vmkernel65"),
            ("win2000AdvServGuest", "win2000advserv"),
            ("darwin16_64Guest", "darwin"),
            ("UBUNTU64GUEST", "unknown"),
            ("", "unknown"),
        ];
        for (os_id, short) in table {
            assert_eq!(short_name(os_id), short, "{os_id}");
        }
    }
}
