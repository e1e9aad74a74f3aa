//! Drives a real browser in tests: starts chromedriver and chromium with a profile of their own, and controls them through
//! [WebDriver](https://www.w3.org/TR/webdriver2/).
//!
//! ```text
//!  test ──HTTP──► chromedriver ──DevTools protocol──► chromium, headless ──► the page under test
//! ```
//!
//! The client blocks, so that tests of any kind can use it; a test that serves the page itself does so on other threads. Only one
//! browser of a process runs at a time. A failed command fails the test: functions panic with the message of the driver.
//!
//! `BOWLINE_CHROMEDRIVER` names another chromedriver than the one on the path; `BOWLINE_CHROMIUM` another browser.

// The crate belongs to tests, which end with a panic.
#![allow(clippy::panic)]

mod driver;
mod http;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use driver::Driver;

/// Maximum time that a page may take to reach a state. Long, because the machine may be busy; tests do not depend on it.
const PATIENCE: Duration = Duration::from_secs(45);

/// Keys without a character, for [`Browser::press`].
pub mod key {
    /// Tab.
    pub const TAB: &str = "\u{e004}";
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// End.
    pub const END: &str = "\u{e010}";
    /// Home.
    pub const HOME: &str = "\u{e011}";
    /// Arrow up.
    pub const UP: &str = "\u{e013}";
    /// Arrow down.
    pub const DOWN: &str = "\u{e015}";
}

/// A browser with one window. Dropping it ends the browser and removes its profile.
pub struct Browser(Driver);

impl Browser {
    /// Starts a browser, or prints why it cannot be tested here.
    pub fn start() -> Option<Browser> {
        match Driver::start() {
            Ok(driver) => {
                let browser = Browser(driver);
                // As in a window in front: without the focus, the page gets no events about it.
                browser.devtools("Emulation.setFocusEmulationEnabled", &json!({ "enabled": true }));
                Some(browser)
            }
            Err(reason) => {
                // Not `eprintln!`, which the test runner captures: the gate counts these lines.
                let _ =
                    std::io::stderr().write_all(format!("\nSKIPPED: no chromium: {reason}\n1 skipped\n").as_bytes());
                None
            }
        }
    }

    /// Opens a URL, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Loads the page again.
    pub fn reload(&self) {
        self.post("/refresh", &json!({}));
    }

    /// Goes back in the history.
    pub fn back(&self) {
        self.post("/back", &json!({}));
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        self.0.command("GET", "/url", None).as_str().unwrap_or_default().to_owned()
    }

    /// Runs a function body in the page, with `arguments`, and returns its result; promises are awaited.
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Evaluates an expression in the page.
    pub fn get(&self, expression: &str) -> Value {
        self.run(&format!("return ({expression});"), &[])
    }

    /// Waits until an expression is true in the page, and fails with the text of the page if it does not become true.
    pub fn wait_for(&self, expression: &str) {
        let start = Instant::now();
        while self.get(&format!("Boolean({expression})")) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "not true: {expression}\n{}", self.describe());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the text of the page contains this one.
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Clicks the first element of this selector as a user would: it has to be visible, and nothing may cover it.
    pub fn click(&self, selector: &str) {
        self.wait_for(&format!("document.querySelector({})", json!(selector)));
        let element = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        let id = element.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        let id = id.unwrap_or_else(|| panic!("{selector} is no element: {element}"));
        self.post(&format!("/element/{id}/click"), &json!({}));
    }

    /// Presses these keys, one after the other; characters, or those of [`key`].
    pub fn press(&self, keys: &str) {
        let actions: Vec<_> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|action| json!({ "type": action, "value": key })))
            .collect();
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] }));
    }

    /// Sets the size of the page.
    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Sets a media feature, such as `prefers-color-scheme` to `dark`.
    pub fn set_media(&self, feature: &str, value: &str) {
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [{ "name": feature, "value": value }] }));
    }

    /// Sends a command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Writes a picture of the visible part of the page.
    pub fn screenshot(&self, path: &Path) {
        let picture = self.devtools("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = base64::prelude::BASE64_STANDARD.decode(picture["data"].as_str().unwrap_or_default());
        let data = data.unwrap_or_else(|error| panic!("the picture is not base64: {error}"));
        std::fs::write(path, data).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// Returns the console's warnings and errors since the last call; requests that failed and violations of the content security policy
    /// are among them.
    pub fn console(&self) -> Vec<String> {
        let entries = self.log("browser");
        let entries = entries.iter().filter(|entry| matches!(entry["level"].as_str(), Some("WARNING" | "SEVERE")));
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Returns the URLs that pages have requested since the last call, without those of the browser's own files.
    pub fn requests(&self) -> Vec<String> {
        let events = self.log("performance").into_iter().filter_map(|entry| {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let is_request = event["message"]["method"] == "Network.requestWillBeSent";
            let url = event["message"]["params"]["request"]["url"].as_str().unwrap_or_default();
            let is_own =
                ["chrome:", "chrome-untrusted:", "data:", "about:"].iter().any(|scheme| url.starts_with(scheme));
            (is_request && !is_own).then(|| url.to_owned())
        });
        events.collect()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        self.post("/se/log", &json!({ "type": kind })).as_array().cloned().unwrap_or_default()
    }

    fn describe(&self) -> String {
        let text = self.get("location.href + '\\n' + document.body.innerText.slice(0, 3000)");
        format!("{}\nconsole: {:#?}", text.as_str().unwrap_or_default(), self.console())
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.0.command("POST", path, Some(body))
    }
}
