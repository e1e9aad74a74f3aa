//! A DNS server with a few names.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// DNS port; `resolv.conf` cannot name another one.
const PORT: u16 = 53;

/// Record types and response codes of RFC 1035.
const ADDRESS: u16 = 1;
const NO_SUCH_NAME: u8 = 3;

/// A server on loopback, which lives as long as the network namespace.
pub(crate) struct Dns {
    queries: Arc<Mutex<Vec<String>>>,
}

impl Dns {
    /// Starts a server that resolves these names to loopback.
    pub(crate) fn start(names: &'static [&'static str]) -> Dns {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).unwrap();
        let queries = Arc::new(Mutex::new(Vec::new()));
        let dns = Dns { queries: Arc::clone(&queries) };
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                let question = Question::read(&query[..length]);
                let reply = question.answer(names.contains(&question.name.as_str()));
                queries.lock().unwrap().push(question.name);
                let _ = socket.send_to(&reply, client);
            }
        });
        dns
    }

    /// Returns the distinct names queried since the last call.
    pub(crate) fn queries(&self) -> Vec<String> {
        let mut names = std::mem::take(&mut *self.queries.lock().unwrap());
        // The program queries IPv4 and IPv6, and retries.
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }
}

/// A question and its encoding.
struct Question {
    id: [u8; 2],
    name: String,
    kind: u16,
    text: Vec<u8>,
}

impl Question {
    /// Parses the first question of a query: a header of 12 bytes, labels with their lengths, a type and a class.
    fn read(query: &[u8]) -> Question {
        let (mut at, mut labels) = (12, Vec::new());
        while query[at] != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
            at = end;
        }
        Question {
            id: [query[0], query[1]],
            name: labels.join("."),
            kind: u16::from_be_bytes([query[at + 1], query[at + 2]]),
            text: query[12..at + 5].to_vec(),
        }
    }

    /// Encodes the response: loopback for IPv4, no records for other types, or NXDOMAIN.
    fn answer(&self, known: bool) -> Vec<u8> {
        let found = known && self.kind == ADDRESS;
        let code = if known { 0 } else { NO_SUCH_NAME };
        // A response with recursion; one question, and one answer or none.
        let mut reply = [&self.id[..], &[0x81, 0x80 | code, 0, 1, 0, u8::from(found), 0, 0, 0, 0], &self.text].concat();
        if found {
            // The name refers to the question at offset 12; then type, class, TTL of 60 seconds, four bytes.
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            reply.extend(Ipv4Addr::LOCALHOST.octets());
        }
        reply
    }
}
