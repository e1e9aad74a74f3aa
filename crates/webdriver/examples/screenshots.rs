//! Writes pictures of the console: `tests/browser/screenshots URL FOLDER [documentation]`.

use std::path::Path;
use std::time::Duration;

use bowline_webdriver::Browser;
use serde_json::json;

/// Name, view, width, height and colour scheme.
type Picture = (&'static str, &'static str, u32, u32, &'static str);

const PICTURES: &[Picture] = &[
    ("overview", "overview", 1440, 1240, "light"),
    ("overview-dark", "overview", 1440, 1240, "dark"),
    ("overview-wide", "overview", 2200, 1300, "light"),
    ("overview-phone", "overview", 390, 844, "light"),
    ("service", "services?item=FIRST", 1440, 1100, "light"),
    ("service-dark", "services?item=FIRST", 1440, 1100, "dark"),
    ("service-phone", "services?item=FIRST", 390, 1100, "dark"),
    ("nodes", "nodes", 1440, 900, "light"),
    ("node", "nodes?item=FIRST", 1440, 1100, "dark"),
    ("now", "now", 1440, 1500, "light"),
    ("playground", "playground", 1440, 1200, "light"),
    ("clouds", "clouds?item=FIRST", 1440, 1100, "dark"),
    ("calls", "calls", 1440, 900, "light"),
    ("events", "events", 1440, 900, "light"),
    ("events-phone", "events", 390, 844, "dark"),
    ("controllers", "controllers", 1440, 1000, "light"),
];

/// Pictures of the documentation.
const DOCUMENTATION: &[Picture] = &[
    ("console-overview", "overview", 1280, 1080, "light"),
    ("console-overview-dark", "overview", 1280, 1080, "dark"),
    ("console-service", "services?item=FIRST", 1280, 1080, "light"),
];

fn main() -> Result<(), String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (url, folder, pictures) = match arguments[..] {
        [url, folder] => (url, folder, PICTURES),
        [url, folder, "documentation"] => (url, folder, DOCUMENTATION),
        _ => return Err("usage: screenshots URL FOLDER [documentation]".to_owned()),
    };
    let browser = Browser::start().ok_or("there is no browser")?;
    browser.open(url);
    browser.wait_for("document.querySelector('.live-now')");
    browser.run("document.querySelector('.introduction button')?.click()", &[]);
    // Charts of what the page has seen need some history.
    std::thread::sleep(Duration::from_secs(20));
    for (name, view, width, height, scheme) in pictures {
        browser.resize(*width, *height);
        browser.set_media("prefers-color-scheme", scheme);
        show(&browser, view);
        // Lines of the picture and transitions take a moment.
        std::thread::sleep(Duration::from_millis(700));
        let path = Path::new(folder).join(format!("{name}.png"));
        browser.screenshot(&path);
        println!("{}", path.display());
    }
    Ok(())
}

/// Goes to a view; `FIRST` stands for the first item of its list, which is the one with the worst health.
fn show(browser: &Browser, view: &str) {
    let (list, item) = view.split_once("?item=").unwrap_or((view, ""));
    browser.run("location.hash = `#/${arguments[0]}`", &[json!(list)]);
    browser.wait_for("document.querySelector('#main h1')");
    if !item.is_empty() {
        browser.wait_for("document.querySelector('.row, .empty')");
        browser.run("document.querySelector('.row .row-link')?.click()", &[]);
    }
}
