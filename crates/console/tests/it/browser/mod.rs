//! The page in a real browser.

mod accessibility;
mod connection;
mod hostile;
mod large;
mod views;

use bowline_webdriver::Browser;

use crate::page::Page;

/// Opens a view, and waits until it has data.
fn open(browser: &Browser, page: &Page, view: &str) {
    browser.open(&page.view(view));
    browser.wait_for("document.querySelector('#main h1') && document.querySelector('.live-now')");
}

/// Goes to another view of a page that is open.
fn go(browser: &Browser, hash: &str) {
    browser.run("location.hash = arguments[0]", &[hash.into()]);
    browser.wait_for("!document.querySelector('#main') || document.querySelector('#main h1')");
}

/// Fails if the page has logged a warning or an error, or has requested anything from another host.
fn assert_quiet(browser: &Browser, page: &Page) {
    assert_eq!(browser.console(), Vec::<String>::new());
    let own = format!("http://{}/", page.address);
    let others: Vec<_> =
        browser.requests().into_iter().filter(|url| !url.starts_with(&own) && !url.starts_with("data:")).collect();
    assert_eq!(others, Vec::<String>::new(), "requests to other hosts");
}

/// All views.
const VIEWS: &[&str] = &[
    "overview",
    "now",
    "playground",
    "nodes",
    "services",
    "events",
    "clouds",
    "machines",
    "load-balancers",
    "routes",
    "calls",
    "controllers",
];

/// Details of an item of each kind, in a fitting view.
const DETAILS: &[&str] = &[
    "nodes?item=node/worker-4",
    "nodes?item=node/worker-5",
    "services?item=service/media/stream",
    "services?item=service/shop/web",
    "services?item=service/shop/missing",
    "machines?item=machine/local/m-000d",
    "load-balancers?item=loadBalancer/local/lb-7f3a-web",
    "routes?item=route/local/10.244.15.0/24",
    "clouds?item=cloud/local",
    "controllers?item=controller/service-lb-controller",
    "controllers?item=queue/service",
    "controllers?item=watch/nodes",
    "events?item=event/3",
];
