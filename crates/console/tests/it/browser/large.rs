//! A large cluster: the page stays usable.

use bowline_webdriver::{Browser, key};
use serde_json::json;

use super::{assert_quiet, go, open};
use crate::page::Page;
use crate::sample;

const NODES: usize = 5_000;
const SERVICES: usize = 1_000;

/// Maximum number of rows, and of all elements, that a view of any size may have.
const MOST_ROWS: u64 = 140;
const MOST_ELEMENTS: u64 = 4_000;

fn number(browser: &Browser, expression: &str) -> u64 {
    browser.get(expression).as_f64().unwrap_or_default() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_nodes_are_few_elements_and_are_found_by_search() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::large(NODES, SERVICES));
    open(&browser, &page, "nodes");
    browser.wait_for("document.querySelector('.row')");
    let timing = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/document')).map((entry) => entry.responseEnd)[0]";
    println!("the first document arrived {} ms after the page was opened", number(&browser, timing));
    let draw = "const start = performance.now(); dispatchEvent(new Event('resize'));
        return new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))))";
    println!("a drawing of the list took {:.1} ms", browser.run(draw, &[]).as_f64().unwrap());
    assert_eq!(
        browser.get("document.querySelector('[role=grid]').getAttribute('aria-rowcount')"),
        (NODES + 1).to_string()
    );
    assert!(number(&browser, "document.querySelectorAll('.row').length") <= MOST_ROWS);

    browser.run("scrollTo(0, document.documentElement.scrollHeight)", &[]);
    browser.wait_for(&format!("document.querySelector('.row[aria-rowindex=\"{}\"]')", NODES + 1));
    assert!(number(&browser, "document.querySelectorAll('.row').length") <= MOST_ROWS);
    browser.run("scrollTo(0, 0)", &[]);

    browser.click("input[type=search]");
    browser.press("node-04321");
    browser.wait_for("document.querySelectorAll('.row').length === 1");
    browser.wait_for_text("1 of 5,000");
    assert_eq!(browser.get("document.activeElement.type"), "search", "the focus stays in the search");
    browser.press(key::TAB);
    go(&browser, "#/nodes?level=warning");
    browser.wait_for("document.querySelectorAll('.row').length === 10");
    go(&browser, "#/nodes?cloud=remote&sort=-Node");
    browser.wait_for_text("1,000 of 5,000");
    browser.wait_for("document.querySelector('.row').innerText.includes('node-04999')");
    assert_quiet(&browser, &page);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_of_a_large_cluster_counts_by_health() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::large(NODES, SERVICES));
    open(&browser, &page, "overview");
    browser.wait_for_text("4,980 ok");
    let elements = number(&browser, "document.querySelectorAll('*').length");
    println!("the overview has {elements} elements");
    assert!(elements <= MOST_ELEMENTS, "{elements}");
    browser.click("[data-id='many/node/ok']");
    browser.wait_for_text("4,980 of 5,000");
    for view in [
        "services",
        "routes",
        "now",
        "services?item=service/team-01/service-0001",
        "nodes?item=node/node-00007.example.internal",
    ] {
        go(&browser, &format!("#/{view}"));
        let elements = number(&browser, "document.querySelectorAll('*').length");
        assert!(elements <= MOST_ELEMENTS, "{view} has {elements}");
    }
    browser.wait_for("document.querySelector('#details-title')");
    let update = json!("MachineGone");
    page.sample.document().node.get_mut("node-00007.example.internal").unwrap().health.reason =
        update.as_str().unwrap().to_owned();
    browser.wait_for_text("MachineGone");
}
