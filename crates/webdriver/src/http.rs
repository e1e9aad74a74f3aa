//! As much HTTP as a WebDriver client needs: one request on each connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Maximum time of a command, such as the start of a browser on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Sends a command, and returns the value of the response.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let response =
        exchange(address, method, path, body).map_err(|error| format!("chromedriver at {address}: {error}"))?;
    let response: Value =
        serde_json::from_slice(&response).map_err(|error| format!("the response is not JSON: {error}"))?;
    match response["value"].get("error") {
        Some(error) => Err(format!("{error}: {}", response["value"]["message"].as_str().unwrap_or_default())),
        None => Ok(response["value"].clone()),
    }
}

/// Sends a request, and returns the body of the response.
fn exchange(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    read_body(&mut stream)
}

/// Reads as many bytes as `Content-Length` says: the driver may keep the connection open.
fn read_body(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut received, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        if let Some((start, length)) = body_of(&received)
            && received.len() >= start + length
        {
            return Ok(received[start..start + length].to_vec());
        }
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Start and length of the body, once the head is complete.
fn body_of(received: &[u8]) -> Option<(usize, usize)> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())?;
    Some((end + 4, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_begins_after_the_head_and_has_the_length_of_the_header() {
        assert_eq!(body_of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), Some((38, 5)));
        assert_eq!(body_of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"), None);
        assert_eq!(body_of(b"HTTP/1.1 204 No Content\r\n\r\n"), None);
    }
}
