//! The page of the playground in a real browser, beside a terminal with the guided tour: each sees what is done on the other.

use bowline_webdriver::Browser;
use serde_json::json;

use super::READY;
use crate::playground_terminal::{Terminal, plain};

/// Goes to another view, or opens the details of an item.
fn go(browser: &Browser, hash: &str) {
    browser.run("location.hash = arguments[0]", &[json!(hash)]);
}

/// Waits until the details have all of these texts.
fn wait_for_details(browser: &Browser, texts: &[&str]) {
    for text in texts {
        browser.wait_for(&format!("document.querySelector('#details').innerText.includes({})", json!(text)));
    }
}

/// Waits until the picture shows an item with this name.
fn wait_for_card(browser: &Browser, name: &str) {
    let names = "[...document.querySelectorAll('.card-name')].map((card) => card.innerText)";
    browser.wait_for(&format!("{names}.some((name) => name.includes({}))", json!(name)));
}

#[test]
fn the_tour_is_seen_on_the_page_and_the_page_changes_what_the_tour_sees() {
    let Some(browser) = Browser::start() else { return };
    let Some(mut terminal) = Terminal::start("browser", &[], &[]) else { return };
    terminal.wait_for("[1/15] ", 1);
    let output = plain(&terminal.output());
    let url = output.lines().find_map(|line| line.strip_prefix(READY)).expect("the URL is printed");
    browser.open(url);
    ["node-1", "node-2", "node-3"].iter().for_each(|node| wait_for_card(&browser, node));

    // Step 4 creates a load balancer; Enter performs each step.
    for number in 1..=4 {
        terminal.wait_for(&format!("[{number}/15] "), 1);
        if number > 1 {
            terminal.press("\n");
        }
        terminal.wait_for("Passed after ", number);
        go(&browser, "#/playground");
        browser.wait_for_text(&format!("{number} of 15 steps passed"));
        terminal.press("\n");
    }
    go(&browser, "#/overview");
    wait_for_card(&browser, "default/hello");
    go(&browser, "#/services?item=service/default/hello");
    wait_for_details(&browser, &["127."]);

    // The tour waits for step 5. Step 9 will find that its machine is stopped already.
    go(&browser, "#/playground");
    browser.click("[aria-label='Stop m-3']");
    browser.wait_for("document.querySelector(\"[aria-label='Start m-3']\")");
    go(&browser, "#/nodes?item=node/node-3");
    wait_for_details(&browser, &["stopped", "Unknown", "node.cloudprovider.kubernetes.io/shutdown"]);
    go(&browser, "#/playground");
    browser.click("[aria-label='Start m-3']");
    go(&browser, "#/nodes?item=node/node-3");
    wait_for_details(&browser, &["running", "True"]);

    // An example beside that of the tour.
    go(&browser, "#/playground");
    browser.click("[aria-label='Create service']");
    go(&browser, "#/services?item=service/default/web");
    wait_for_details(&browser, &["127."]);
    go(&browser, "#/playground");
    browser.click("[aria-label='Delete the example service']");
    browser.click("#confirm[open] .danger");
    go(&browser, "#/overview");
    let gone = "![...document.querySelectorAll('.card-name')].some((card) => card.innerText.includes('default/web'))";
    browser.wait_for(&format!("document.querySelector('.card-name') && {gone}"));

    go(&browser, "#/playground");
    browser.click("[aria-label='Fault empty']");
    browser.wait_for("document.querySelector(\"[aria-label='Fault empty'][aria-checked='true']\")");
    browser.click("[aria-label='Fault empty']");
    browser.wait_for("document.querySelector(\"[aria-label='Fault empty'][aria-checked='false']\")");

    assert_eq!(browser.console(), Vec::<String>::new(), "warnings and errors of the page");
    terminal.press("q");
    assert_eq!(terminal.check_end().code(), Some(0));
}
