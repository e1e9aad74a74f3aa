//! What the page shows while the manager is away, and afterwards.

use bowline_webdriver::Browser;

use super::{go, open};
use crate::page::Page;
use crate::sample::{self, Sample};

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_goes_away_and_comes_back_replaces_the_document() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "nodes");
    browser.wait_for("document.querySelectorAll('.row').length === 5");

    page.feed.set(Err("the leader bowline-1 does not respond: connection refused"));
    browser.wait_for("document.querySelector('.banner')");
    browser.wait_for_text("The manager cannot be read.");
    browser.wait_for_text("the leader bowline-1 does not respond: connection refused");
    browser.wait_for("/You see the state of .* old\\./.test(document.querySelector('.banner').innerText)");
    browser.wait_for("document.querySelector('.live-old')");
    browser.wait_for("document.querySelector('#status').textContent.includes('connection refused')");
    assert_eq!(browser.get("document.querySelectorAll('.row').length"), 5, "the last state stays visible");

    let mut document = sample::small();
    document.node.retain(|name, _| name == "worker-2");
    page.feed.set(Ok(Sample::new(document).publisher()));
    browser.wait_for("!document.querySelector('.banner')");
    browser.wait_for("document.querySelectorAll('.row').length === 1");
    browser.wait_for("document.querySelector('.live-now')");
    browser.wait_for("document.querySelector('#status').textContent === 'Connected again.'");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_started_again_needs_its_new_url() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "nodes");
    let address = page.address;
    page.stop().await;
    browser.wait_for_text("The program that serves this page does not respond.");
    browser.wait_for_text("next try in");

    let page = Page::start(sample::small(), true, address);
    browser.wait_for_text("This page has no valid token.");
    browser.wait_for_text("open the URL with the token that the program printed");
    go(&browser, page.url.split_once('#').unwrap().1);
    browser.wait_for("!document.querySelector('.banner')");
    assert!(!browser.url().contains("token"), "{}", browser.url());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_a_token_says_where_to_find_one() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    browser.open(&format!("http://{}/", page.address));
    browser.wait_for_text("open the URL with the token that the program printed");
    assert!(!browser.get("document.body.innerText").as_str().unwrap().contains("worker-1"));
}
