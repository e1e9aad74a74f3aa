//! Texts that try to become something else: markup, scripts, very long ones, and ones that change the direction of writing.

use bowline_console::Document;
use bowline_console::document::{Event, Health, Level};
use bowline_webdriver::Browser;
use serde_json::json;

use super::{VIEWS, assert_quiet, go, open};
use crate::page::Page;
use crate::sample;

fn hostile() -> Vec<String> {
    let texts = [
        "<img src=x onerror=window.hacked=1>",
        "<script>window.hacked=1</script>",
        "\"><svg onload=window.hacked=1>",
        "javascript:window.hacked=1",
        "</title></style></script><b>bold</b>",
        "{{constructor.constructor('window.hacked=1')()}}",
        "__proto__",
        "constructor",
        "a/b?c&d#e=%2F'\"",
        "\u{202e}gnp.exe\u{2066}",
        "אבג שלום",
        "line\nbreak\u{0}\u{7}",
    ];
    texts.iter().map(|text| (*text).to_owned()).chain(["x".repeat(10_000), "wide ".repeat(2_000)]).collect()
}

/// A document in which each text is one of these.
fn document(texts: &[String]) -> Document {
    let mut document = sample::small();
    let (node, service) = (document.node["worker-4"].clone(), document.service["media/stream"].clone());
    let (machine, cloud, balancer) = (
        document.machine["local/m-000b"].clone(),
        document.cloud["local"].clone(),
        document.load_balancer["local/lb-7f3a-web"].clone(),
    );
    let (queue, step, fault) =
        (document.queue["service"].clone(), document.step["02"].clone(), document.fault["slow"].clone());
    for text in texts {
        let t = || text.clone();
        let health = Health { level: Level::Error, reason: t(), message: t() };
        let mut node = node.clone();
        (node.health, node.zone, node.instance_type, node.provider_id, node.cloud) =
            (health.clone(), Some(t()), Some(t()), Some(t()), Some(t()));
        (node.addresses, node.taints, node.pod_cidrs, node.machine_state, node.machine) =
            (vec![t()], vec![t()], vec![t()], t(), Some(t()));
        if let Some(held) = &mut node.held {
            (held.reason, held.message, held.command) = (t(), t(), Some(t()));
        }
        node.work = node.work.into_values().map(|work| (t(), work)).collect();
        document.node.insert(t(), node);
        let mut service = service.clone();
        (service.health, service.cloud, service.class, service.load_balancer) =
            (health.clone(), Some(t()), Some(t()), Some(t()));
        (service.addresses, service.ports, service.kind, service.traffic_policy) = (vec![t()], vec![t()], t(), t());
        if let Some(plan) = &mut service.plan {
            (plan.trigger, plan.outcome, plan.error, plan.warnings) = (t(), t(), Some(t()), vec![t()]);
            plan.steps
                .iter_mut()
                .for_each(|step| (step.verb, step.kind, step.name, step.changes) = (t(), t(), t(), vec![t()]));
        }
        (service.work.error, service.targets) =
            (Some(t()), vec![bowline_console::document::Target { node: t(), draining: false }]);
        document.service.insert(format!("{text}/{text}"), service);
        let mut machine = machine.clone();
        (machine.health, machine.id, machine.cloud, machine.node, machine.state, machine.zone) =
            (health.clone(), t(), t(), t(), t(), t());
        document.machine.insert(format!("{text}/{text}"), machine);
        let mut cloud = cloud.clone();
        (cloud.health, cloud.provider, cloud.region) = (health.clone(), t(), Some(t()));
        cloud.details.insert(t(), t());
        document.cloud.insert(t(), cloud);
        let mut balancer = balancer.clone();
        (balancer.health, balancer.cloud, balancer.service, balancer.addresses) =
            (health.clone(), t(), Some(t()), vec![t()]);
        balancer.listeners.iter_mut().for_each(|listener| listener.port = t());
        document.load_balancer.insert(format!("{text}/{text}"), balancer);
        let mut queue = queue.clone();
        queue.keys = queue.keys.into_values().map(|work| (t(), work)).collect();
        document.queue.insert(t(), queue);
        document.controller.insert(t(), Default::default());
        document.watch.insert(t(), Default::default());
        let mut step = step.clone();
        (step.title, step.text, step.state, step.checks) = (t(), t(), t(), vec![(t(), true)]);
        document.step.insert(t(), step);
        document.fault.insert(t(), bowline_console::document::Fault { text: t(), ..fault.clone() });
        let event = Event {
            kind: t(),
            reason: t(),
            message: t(),
            controller: t(),
            object_kind: t(),
            object: t(),
            ..document.event["1"].clone()
        };
        document.event.insert(t(), event);
        let manager = document.manager.get_mut("self").unwrap();
        (manager.version, manager.cluster) = (t(), Some(t()));
        manager.leases.insert(t(), json!({ text: text }));
    }
    document
}

/// Elements that only injected markup can have made, or attributes that are code.
const INJECTED: &str = r"
    const found = [];
    if (window.hacked !== undefined) found.push('a script ran');
    if (document.scripts.length !== 1) found.push('script');
    if (document.querySelector('#main b:not(.legend b, .chip b), #details b:not(.legend b), iframe, object, embed, form, style')) found.push('markup');
    for (const image of document.images) if (new URL(image.src).pathname !== '/icon.svg') found.push(image.src);
    for (const link of document.querySelectorAll('a')) if (!link.getAttribute('href').startsWith('#/')) found.push(link.getAttribute('href'));
    for (const element of document.querySelectorAll('*'))
        for (const { name } of element.attributes) if (name.startsWith('on') || name === 'srcdoc') found.push(name);
    if (/[\u202a-\u202e\u2066-\u2069\u0000]/.test(document.body.innerText)) found.push('control characters');
    if (Object.keys(Object.prototype).length) found.push('prototype');
    return found;";

/// Elements that are wider than the window, other than those that scroll.
const WIDE: &str = r"
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    const wide = [...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().right > innerWidth + 1);
    return wide.slice(-5).map((element) => `${element.tagName}.${element.className} ${element.innerText?.slice(0, 40)}`);";

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_stay_texts_and_do_not_break_the_layout() {
    let Some(browser) = Browser::start() else { return };
    let texts = hostile();
    let page = Page::serve(document(&texts));
    for width in [1280, 360] {
        browser.resize(width, 800);
        open(&browser, &page, "overview");
        for view in VIEWS {
            go(&browser, &format!("#/{view}"));
            assert_eq!(browser.run(INJECTED, &[]), json!([]), "{view}, {width}");
            assert_eq!(browser.run(WIDE, &[]), json!([]), "{view}, {width}");
        }
        for text in &texts {
            for (view, item) in [
                ("nodes", format!("node/{text}")),
                ("services", format!("service/{text}/{text}")),
                ("clouds", format!("cloud/{text}")),
                ("machines", format!("machine/{text}/{text}")),
                ("load-balancers", format!("loadBalancer/{text}/{text}")),
            ] {
                browser.run(
                    "location.hash = `#/${arguments[0]}?${new URLSearchParams({ item: arguments[1] })}`",
                    &[json!(view), json!(item)],
                );
                browser.wait_for("document.querySelector('#details .state')");
                let short: String = item.chars().take(60).collect();
                assert_eq!(browser.run(INJECTED, &[]), json!([]), "{short}, {width}");
                let actual = browser.get("Math.max(document.documentElement.scrollWidth, document.querySelector('#details').getBoundingClientRect().right)");
                assert!(actual.as_f64().unwrap() <= f64::from(width), "{short} is {actual} wide, not {width}");
            }
        }
    }
    let errors: Vec<_> = browser.console();
    assert_eq!(errors, Vec::<String>::new());
    assert_quiet(&browser, &page);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_name_is_shown_as_it_is_and_opens_its_own_details() {
    let Some(browser) = Browser::start() else { return };
    let texts = hostile();
    let page = Page::serve(document(&texts));
    for name in ["<img src=x onerror=window.hacked=1>", "a/b?c&d#e=%2F'\"", "__proto__", "constructor"] {
        open(&browser, &page, "nodes");
        browser.run("location.hash = '#/nodes?' + new URLSearchParams({ q: arguments[0] })", &[json!(name)]);
        let is_shown =
            format!("[...document.querySelectorAll('.row-link')].some((link) => link.innerText === {})", json!(name));
        browser.wait_for(&is_shown);
        let script =
            "[...document.querySelectorAll('.row-link')].find((link) => link.innerText === arguments[0]).click()";
        browser.run(script, &[json!(name)]);
        browser.wait_for(&format!("document.querySelector('#details-title')?.innerText === {}", json!(name)));
        assert_eq!(browser.run(INJECTED, &[]), json!([]), "{name}");
    }
    open(&browser, &page, "nodes");
    browser.wait_for_text("⟨202E⟩gnp.exe⟨2066⟩");
}
