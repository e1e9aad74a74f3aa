//! What the views show, and what their buttons do.

use bowline_console::document::Health;
use bowline_console::page::Action;
use bowline_webdriver::{Browser, key};
use serde_json::json;

use super::{DETAILS, VIEWS, assert_quiet, go, open};
use crate::page::Page;
use crate::sample;

#[tokio::test(flavor = "multi_thread")]
async fn every_view_loads_without_errors_and_requests_nothing_from_other_hosts() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    browser.open(&page.url);
    browser.wait_for_text("worker-1");
    browser.wait_for_text("shop/web");
    assert!(!browser.url().contains(page.token()), "the token is removed from the URL: {}", browser.url());
    for view in VIEWS.iter().chain(DETAILS) {
        go(&browser, &format!("#/{view}"));
        let is_details = view.contains('?');
        browser.wait_for(&format!("document.querySelector('#details').hidden === {}", !is_details));
        assert!(
            browser.get("document.querySelector('#main').innerText.length").as_u64().unwrap() > 5,
            "{view} is empty"
        );
    }
    browser.reload();
    browser.wait_for_text("Live");
    assert_quiet(&browser, &page);
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_show_the_calls_of_the_last_minutes() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    for (view, title) in [("overview", "Cloud calls per 10 s"), ("now", "Calls per 10 s")] {
        open(&browser, &page, view);
        let chart =
            format!("[...document.querySelectorAll('figure')].find((one) => one.innerText.includes({title:?}))");
        browser.wait_for(&format!("{chart} !== undefined"));
        let bars = browser.get(&format!("{chart}.querySelector('.series').getAttribute('d').split('Z').length - 1"));
        assert!(bars.as_u64().unwrap() > 20, "{view}: {bars} bars");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_says_at_once_why_a_service_is_pending_and_what_to_do() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    browser.wait_for("document.querySelectorAll('.finding').length >= 6");
    let finding = |name: &str| {
        let script = "return [...document.querySelectorAll('.finding')].find((entry) => entry.innerText.includes(arguments[0])).innerText";
        browser.run(script, &[json!(name)]).as_str().unwrap().to_owned()
    };
    let quota = finding("media/stream");
    for text in [
        "Service media/stream",
        "QuotaExceeded",
        "The quota for load balancers is used up",
        "4 failures in a row",
        "next try in",
        "kubectl --namespace media describe service stream",
    ] {
        assert!(quota.contains(text), "{text}: {quota}");
    }
    let held = finding("worker-4");
    assert!(held.contains("kubectl annotate node worker-4 bowline.dev/release-deletion=true"), "{held}");
    assert!(!browser.get("document.querySelector('.attention').innerText").as_str().unwrap().contains("shop/web"));
    let first = browser.get("document.querySelector('.finding .icon').closest('.level').className");
    assert_eq!(first, "level level-error", "errors first");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_connects_what_belongs_together_and_highlights_a_path() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    // 5 machines to their cloud and Nodes, 5 targets of two load balancers, and two Services.
    browser.wait_for("document.querySelectorAll('.edges path').length === 17");
    assert_eq!(browser.get("document.querySelectorAll('.edges path.broken').length"), 1, "the unhealthy target");
    browser.run("document.querySelector('[data-id=\"service/shop/web\"]').focus()", &[]);
    browser.wait_for("document.querySelector('[data-id=\"node/worker-4\"]').hasAttribute('data-dim')");
    for lit in
        ["service/shop/web", "loadBalancer/local/lb-7f3a-web", "node/worker-1", "machine/local/m-000b", "cloud/local"]
    {
        assert_eq!(
            browser.run(
                "return document.querySelector(`[data-id='${arguments[0]}']`).hasAttribute('data-dim')",
                &[json!(lit)]
            ),
            false,
            "{lit}"
        );
    }
    browser.press(key::ENTER);
    browser.wait_for("document.querySelector('#details-title').innerText === 'shop/web'");
    assert_quiet(&browser, &page);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_the_document() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "services?item=service/media/stream");
    browser.wait_for(
        "document.querySelector('.path [aria-current=step]').innerText.includes('The cloud has the load balancer')",
    );
    {
        let mut document = page.sample.document();
        let web = document.service["shop/web"].clone();
        let service = document.service.get_mut("media/stream").unwrap();
        *service = bowline_console::document::Service {
            addresses: vec!["203.0.113.77".to_owned()],
            health: Health::ok(),
            ..web
        };
        document.service.remove("default/hello");
    }
    browser.wait_for_text("203.0.113.77");
    browser.wait_for("!document.querySelector('.path [aria-current=step]')");
    browser.wait_for("!document.querySelector('#main').innerText.includes('default/hello')");
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_are_sent_with_the_token_and_show_their_result() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    page.sample.document().fault.insert("broken".to_owned(), Default::default());
    open(&browser, &page, "playground");
    browser.click("[aria-label='Stop m-000b']");
    browser.wait_for_text("Performed StopMachine(\"m-000b\").");
    browser.click("[aria-label='Start m-000d']");
    browser.wait_for_text("Performed StartMachine(\"m-000d\").");
    assert_eq!(
        browser.get("document.querySelector('[aria-label=\"Fault throttle\"]').getAttribute('aria-checked')"),
        "true"
    );
    browser.click("[aria-label='Fault throttle']");
    browser.wait_for_text("Performed StopFault(\"throttle\").");
    browser.click("[aria-label='Create hello']");
    browser.wait_for_text("Performed CreateExample(\"hello\").");
    let performed = [
        Action::StopMachine("m-000b".to_owned()),
        Action::StartMachine("m-000d".to_owned()),
        Action::StopFault("throttle".to_owned()),
        Action::CreateExample("hello".to_owned()),
    ];
    assert_eq!(page.performed.take(), performed);

    browser.click("[aria-label='Delete the machine m-000b']");
    browser.wait_for("document.querySelector('#confirm').open");
    browser.press(key::ENTER);
    browser.wait_for("!document.querySelector('#confirm').open");
    assert_eq!(page.performed.take(), [], "Cancel has the focus");
    browser.click("[aria-label='Delete the machine m-000b']");
    browser.click("#confirm .danger");
    browser.wait_for_text("Performed DeleteMachine(\"m-000b\").");
    assert_eq!(page.performed.take(), [Action::DeleteMachine("m-000b".to_owned())]);
    assert_quiet(&browser, &page);

    browser.click("[aria-label='Fault broken']");
    browser.wait_for_text("the cloud is broken; repair it first");
    assert_eq!(page.performed.take(), [Action::StartFault("broken".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_actions_has_no_buttons_for_them() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve_read_only(sample::small());
    for view in ["playground", "nodes?item=node/worker-1", "machines?item=machine/local/m-000b"] {
        open(&browser, &page, view);
        browser.wait_for_text(if view == "playground" { "Tour" } else { "worker-1" });
        assert_eq!(browser.get("document.querySelectorAll('.buttons, .danger, .switch').length"), 0, "{view}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_ticks_its_checks_as_they_become_true() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "playground");
    browser.wait_for("document.querySelectorAll('.tour-step[aria-current] .checks .done').length === 1");
    page.sample.document().step.get_mut("02").unwrap().checks[1].1 = true;
    browser.wait_for("document.querySelectorAll('.tour-step[aria-current] .checks .done').length === 2");
    page.sample.document().step.get_mut("02").unwrap().state = "passed".to_owned();
    browser.wait_for("!document.querySelector('.tour-step[aria-current]')");
    browser.wait_for_text("2 of 4 steps passed");
}
