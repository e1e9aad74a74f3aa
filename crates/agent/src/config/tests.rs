use super::*;

fn read(text: &str) -> Result<Config, ConfigErrors> {
    Config::read(&ConfigFile::from_text("agent.yaml", text))
}

const FULL: &str = "\
name: lb-1
listen: 192.0.2.11:9470
stateFile: /var/lib/agent/state.json
tls:
  certificateFile: lb-1.crt
  keyFile: lb-1.key
  clientCaFile: ca.crt
clients: [bowline, spare]
followers: [node-1]
peers:
  lb-2: {endpoint: \"https://192.0.2.12:9470\"}
  lb-3:
    endpoint: https://lb-3.example:9470
interface: eth1
pool: [192.0.2.200/29, 192.0.2.210-192.0.2.220, \"2001:db8::100/120\"]
internalPool: [10.0.0.1]
role: member
routes: {enabled: false}
metricsListen: 127.0.0.1:9999
";

#[test]
fn a_full_configuration_is_read() {
    let config = read(FULL).unwrap();
    assert_eq!((config.name.as_str(), config.quorum, config.members()), ("lb-1", 2, 3));
    assert_eq!(config.peers[1], Peer { name: "lb-3".to_owned(), endpoint: "https://lb-3.example:9470".to_owned() });
    assert_eq!((config.pools.external.len(), config.pools.internal.len()), (3, 1));
    assert_eq!(config.tls.unwrap().client_ca_file, PathBuf::from("ca.crt"));
    assert_eq!((config.kernel_routes, config.role), (false, Role::Member));
    assert_eq!(config.listen, Listen::Tcp("192.0.2.11:9470".parse().unwrap()));
}

#[test]
fn all_hosts_can_have_the_same_file() {
    let text = FULL.replace("name: lb-1\n", "").replace("File: lb-1.", "File: pki/{name}.");
    let config = read(&format!("name: lb-2\n{text}")).unwrap();
    let peers: Vec<_> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
    assert_eq!((peers, config.members(), config.quorum), (vec!["lb-3"], 2, 1));
    let tls = config.tls.unwrap();
    assert_eq!((tls.certificate_file, tls.key_file), ("pki/lb-2.crt".into(), "pki/lb-2.key".into()));
}

#[test]
fn a_unix_socket_needs_nothing_else() {
    let config = read("listen: unix:/run/agent.sock\n").unwrap();
    assert_eq!((config.quorum, config.tls, config.clients), (1, None, vec!["bowline".to_owned()]));
    assert_eq!(config.metrics_listen, Some("127.0.0.1:9471".parse().unwrap()));
    assert!(!config.name.is_empty(), "the host name");
    assert_eq!(read("listen: unix:/run/agent.sock\nmetricsListen: ''\n").unwrap().metrics_listen, None);
}

#[test]
fn all_errors_are_reported_at_once_with_their_lines() {
    let text = "\
listen: lb-1:9470
pool: [192.0.2.0/29, 192.0.2.7, lb]
quorum: 4
peers:
  lb-2: {endpoint: \"http://192.0.2.12:9470\"}
  lb-3: {endpoint: \"https://192.0.2.13\"}
role: leader
";
    let errors = read(text).unwrap_err().to_string();
    let expected = [
        "agent.yaml:7: role: \"leader\" is not a valid value",
        "agent.yaml:1: listen: \"lb-1:9470\" is neither IP:PORT nor unix:/PATH; write",
        "agent.yaml: tls.certificateFile: is required; create",
        "agent.yaml: tls.keyFile: is required; create",
        "agent.yaml: tls.clientCaFile: is required; create",
        "agent.yaml:5: peers.lb-2.endpoint: \"http://192.0.2.12:9470\" does not start with https://; write",
        "agent.yaml:6: peers.lb-3.endpoint: \"https://192.0.2.13\" does not consist of a host and a port; write",
        "agent.yaml:2: pool: \"lb\" is not an address pool; expected a CIDR",
        "agent.yaml:2: pool: 192.0.2.7/32 overlaps with 192.0.2.0/29; name each address once",
        "agent.yaml:3: quorum: 4 agents can never reach each other: the group has 1; lower",
    ];
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{errors}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
}

#[test]
fn single_errors_name_the_key_and_the_fix() {
    let unix = "listen: unix:/run/agent.sock\n";
    let table = [
        (format!("{FULL}nam: a\n"), ":20: nam: unknown key; did you mean name?"),
        (
            FULL.replace("name: lb-1", "name: lb-2").replace("[10.0.0.1]", "[192.0.2.12]"),
            ":16: internalPool: 192.0.2.12/32 contains the address 192.0.2.12 of this agent; remove",
        ),
        (
            FULL.replace("192.0.2.200/29", "192.0.2.8/29"),
            ":15: pool: 192.0.2.8/29 contains the address 192.0.2.11 of this agent; remove",
        ),
        (
            FULL.replace("[10.0.0.1]", "[192.0.2.12]"),
            ":16: internalPool: 192.0.2.12/32 contains the address 192.0.2.12 of the peer \"lb-2\"; remove",
        ),
        (format!("{unix}role: follower\n"), ":2: role: a follower needs the agents whose state it copies; list"),
        (format!("{unix}tls: {{keyFile: a}}\n"), ":2: tls.keyFile: is not used with a Unix socket; remove"),
        (
            format!("{unix}peers: {{a: {{endpoint: 'https://a:1'}}}}\n"),
            ":1: listen: peers cannot reach a Unix socket; listen",
        ),
        (format!("{unix}metricsListen: 9471\n"), ":2: metricsListen: \"9471\" is not IP:PORT; write"),
        ("listen: unix:agent.sock\n".to_owned(), ":1: listen: \"unix:agent.sock\" has no absolute path; write"),
        (
            format!("{unix}pool: [192.0.2.9-192.0.2.1]\n"),
            ":2: pool: \"192.0.2.9-192.0.2.1\" has a last address below the first one; expected",
        ),
    ];
    for (text, expected) in table {
        let errors = read(&text).unwrap_err().to_string();
        assert!(errors.starts_with(&format!("agent.yaml{expected}")), "{errors}\n{expected}");
    }
}

#[test]
fn the_quorum_is_a_majority_of_three_and_more() {
    let peers = |count: usize| {
        let peers: Vec<_> = (0..count).map(|index| format!("p{index}: {{endpoint: 'https://p{index}:1'}}")).collect();
        FULL.replace("lb-3:\n    endpoint: https://lb-3.example:9470", &peers.join("\n  "))
    };
    for (others, quorum) in [(1, 2), (2, 3), (3, 3)] {
        let config = read(&peers(others)).unwrap();
        assert_eq!((config.members(), config.quorum), (others + 2, quorum));
    }
    let two = FULL.replace("  lb-3:\n    endpoint: https://lb-3.example:9470\n", "");
    assert_eq!(read(&two).unwrap().quorum, 1);
    assert_eq!(read(&format!("{two}quorum: 2\n")).unwrap().quorum, 2);
}

#[test]
fn the_reference_page_and_the_template_name_the_keys() {
    let reference = Config::reference();
    assert_eq!(reference.matches("\n| `").count(), super::keys::count(), "{reference}");
    assert!(read(&Config::template()).is_ok(), "{}", Config::template());
}
