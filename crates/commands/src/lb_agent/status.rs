//! `bowline lb-agent status`: table of the agents of a group, pools, and problems.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use bowline_agent::{Answer, query_group};
use bowline_agent_client::{AgentRole, AgentStatus, PoolStatus};
use bowline_core::IpFamily;
use bowline_settings::BadInput;
use serde_json::{Value, json};

use super::read;
use crate::cli::{Output, StatusArgs};
use crate::output;

pub(super) async fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let config = read(&args.config)?;
    let answers =
        query_group(&config).await.map_err(|error| BadInput(format!("{}: {error}", args.config.display())))?;
    match args.output.output {
        Output::Text => output::print(format_args!("{}", text(&answers))),
        Output::Json => output::print(format_args!("{:#}\n", to_json(&answers))),
    }?;
    Ok(if active(&answers).len() == 1 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Names of the active agents.
fn active(answers: &[Answer]) -> Vec<&str> {
    let is_active = |answer: &&Answer| answer.status.as_ref().is_ok_and(|status| status.role == AgentRole::Active);
    answers.iter().filter(is_active).map(|answer| answer.name.as_str()).collect()
}

/// Conditions that need an operator.
fn problems(answers: &[Answer]) -> BTreeSet<String> {
    let is_reached = |name: &str| answers.iter().any(|answer| answer.name == name && answer.status.is_ok());
    let mut problems: BTreeSet<String> = BTreeSet::new();
    for answer in answers {
        match &answer.status {
            Ok(status) => {
                problems.extend(status.problems.iter().cloned());
                // Those that this command does not reach either have an entry of their own.
                let cut_off = status.peers.iter().filter(|peer| !peer.reachable && is_reached(&peer.name));
                problems.extend(cut_off.map(|peer| {
                    let why = peer.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                    format!("{} does not reach {}{why}", status.name, peer.name)
                }));
            }
            Err(error) => _ = problems.insert(format!("{} ({}): {error}", answer.name, answer.endpoint)),
        }
    }
    match active(answers).as_slice() {
        [] => _ = problems.insert("no agent is active, so load balancers are not reachable".to_owned()),
        [_] => {}
        several => {
            let names = several.join(" and ");
            problems.insert(format!("{names} are active at the same time; fix: check that they reach each other"));
        }
    }
    problems
}

fn text(answers: &[Answer]) -> String {
    let mut text = table(answers);
    let statuses = || answers.iter().filter_map(|answer| answer.status.as_ref().ok());
    let source = statuses().find(|status| status.role == AgentRole::Active).or(statuses().next());
    let pools = source.map(|status| status.pools.as_slice()).unwrap_or_default();
    if !pools.is_empty() {
        let pools: Vec<_> = pools.iter().map(pool).collect();
        let _ = write!(text, "\nPool: {}\n", pools.join(", "));
    }
    let problems = problems(answers);
    if !problems.is_empty() {
        text += "\nProblems:\n";
        problems.iter().for_each(|problem| _ = writeln!(text, "- {problem}"));
    }
    text
}

fn pool(pool: &PoolStatus) -> String {
    let family = if pool.family == IpFamily::IPv4 { "IPv4" } else { "IPv6" };
    let internal = if pool.internal { "internal " } else { "" };
    format!("{} of {} {internal}{family} addresses in use", pool.used, pool.size)
}

const HEADER: [&str; 6] = ["AGENT", "ROLE", "TERM", "VERSION", "ADDRESSES", "CONNECTIONS"];

fn table(answers: &[Answer]) -> String {
    let rows: Vec<_> = std::iter::once(HEADER.map(str::to_owned)).chain(answers.iter().map(row)).collect();
    let widths = [0, 1, 2, 3, 4, 5]
        .map(|column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default());
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("   ").trim_end());
    }
    text
}

fn row(answer: &Answer) -> [String; 6] {
    match &answer.status {
        Ok(status) => [
            answer.name.clone(),
            status.role.as_str().to_owned(),
            status.term.to_string(),
            status.state.clone(),
            status.addresses.to_string(),
            status.connections.to_string(),
        ],
        Err(_) => [answer.name.as_str(), "unreachable", "-", "-", "-", "-"].map(str::to_owned),
    }
}

fn to_json(answers: &[Answer]) -> Value {
    let agent = |answer: &Answer| {
        let status: Option<&AgentStatus> = answer.status.as_ref().ok();
        json!({
            "name": answer.name,
            "endpoint": answer.endpoint,
            "status": status,
            "error": answer.status.as_ref().err(),
        })
    };
    let agents: Vec<_> = answers.iter().map(agent).collect();
    json!({"agents": agents, "active": active(answers), "problems": problems(answers)})
}

#[cfg(test)]
mod tests {
    use bowline_agent_client::PeerStatus;

    use super::*;

    fn answer(name: &str, role: AgentRole) -> Answer {
        let pool = PoolStatus { internal: false, family: IpFamily::IPv4, ranges: Vec::new(), size: 20, used: 3 };
        let status = AgentStatus {
            name: name.to_owned(),
            version: "1.4.0".to_owned(),
            role,
            term: 2,
            state: "2.17".to_owned(),
            addresses: 3,
            connections: 1500,
            pools: vec![pool],
            peers: Vec::new(),
            problems: Vec::new(),
        };
        Answer { name: name.to_owned(), endpoint: format!("https://{name}:9470"), status: Ok(status) }
    }

    fn peer(name: &str, reachable: bool) -> PeerStatus {
        let message = (!reachable).then(|| "timeout".to_owned());
        PeerStatus { name: name.to_owned(), endpoint: String::new(), reachable, message }
    }

    fn unreachable(name: &str) -> Answer {
        Answer { status: Err("connection refused".to_owned()), ..answer(name, AgentRole::Standby) }
    }

    #[test]
    fn the_table_has_a_row_for_each_agent() {
        let text = text(&[answer("lb-1", AgentRole::Active), unreachable("lb-2")]);
        let expected = "\
AGENT   ROLE          TERM   VERSION   ADDRESSES   CONNECTIONS
lb-1    active        2      2.17      3           1500
lb-2    unreachable   -      -         -           -

Pool: 3 of 20 IPv4 addresses in use

Problems:
- lb-2 (https://lb-2:9470): connection refused
";
        assert_eq!(text, expected);
    }

    #[test]
    fn exactly_one_agent_must_be_active() {
        let [one, two] = ["lb-1", "lb-2"].map(|name| answer(name, AgentRole::Active));
        let standby = answer("lb-3", AgentRole::Standby);
        assert_eq!(active(&[one.clone(), standby.clone()]), ["lb-1"]);
        assert!(problems(&[one.clone(), standby.clone()]).is_empty());
        assert!(problems(&[standby]).first().unwrap().starts_with("no agent is active"));
        assert!(problems(&[one, two]).first().unwrap().starts_with("lb-1 and lb-2 are active at the same time"));
    }

    #[test]
    fn problems_of_all_agents_are_listed_once_and_are_in_the_json() {
        let mut agents = [answer("lb-1", AgentRole::Active), answer("lb-2", AgentRole::Standby), unreachable("lb-3")];
        for answer in &mut agents[..2] {
            let status = answer.status.as_mut().unwrap();
            status.problems = vec!["the pools differ".to_owned()];
            let is_first = status.name == "lb-1";
            status.peers = ["lb-2", "lb-3"].map(|name| peer(name, !is_first)).to_vec();
        }
        let json = to_json(&agents);
        let expected = json!([
            "lb-1 does not reach lb-2: timeout",
            "lb-3 (https://lb-3:9470): connection refused",
            "the pools differ"
        ]);
        assert_eq!((&json["problems"], &json["active"]), (&expected, &json!(["lb-1"])));
        assert_eq!(json["agents"][1]["status"]["role"], "standby");
        let json = to_json(&[unreachable("lb-1")]);
        assert_eq!(json["agents"][0]["error"], "connection refused");
    }
}
