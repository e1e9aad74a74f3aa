//! Keyboard, screen readers, contrast and small windows.

use bowline_webdriver::{Browser, key};
use serde_json::{Value, json};

use super::{DETAILS, VIEWS, assert_quiet, go, open};
use crate::page::Page;
use crate::sample;

/// Presses a key until the expression is true, at most `most` times.
fn press_until(browser: &Browser, key: &str, expression: &str, most: usize) {
    for _ in 0..most {
        if browser.get(&format!("Boolean({expression})")) == json!(true) {
            return;
        }
        browser.press(key);
    }
    let focus = browser.get("document.activeElement.outerHTML.slice(0, 300)");
    assert_eq!(browser.get(&format!("Boolean({expression})")), json!(true), "{expression}; the focus is on {focus}");
}

#[tokio::test(flavor = "multi_thread")]
async fn details_can_be_opened_read_and_closed_with_the_keyboard_only() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    let focus = "document.activeElement";
    press_until(&browser, key::TAB, &format!("{focus}.getAttribute('href') === '#/nodes'"), 30);
    browser.press(key::ENTER);
    browser.wait_for("document.querySelectorAll('.row').length === 5");
    browser.wait_for(&format!("{focus}.tagName === 'H1'"));
    press_until(&browser, key::TAB, &format!("{focus}.classList.contains('row-link')"), 30);
    // Sorted by health: the error first.
    assert_eq!(browser.get(&format!("{focus}.innerText")), "worker-4");
    browser.press(key::DOWN);
    assert_eq!(browser.get(&format!("{focus}.innerText")), "worker-3");
    browser.press(key::END);
    let last = browser.get(&format!("{focus}.innerText"));
    assert_eq!(last, "worker-2");
    browser.press(key::HOME);
    browser.press(key::ENTER);
    browser.wait_for(&format!("{focus}.id === 'details-title'"));
    assert_eq!(browser.get(&format!("{focus}.innerText")), "worker-4");
    browser.press(key::ESCAPE);
    browser.wait_for("document.querySelector('#details').hidden");
    browser.wait_for(&format!("{focus}.classList.contains('row-link')"));
    assert_eq!(browser.get(&format!("{focus}.innerText")), "worker-4", "the focus is where it was");
    browser.press("/");
    browser.press("worker-5");
    browser.wait_for("document.querySelectorAll('.row').length === 1");
    assert_quiet(&browser, &page);
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_are_reachable_with_the_keyboard_and_complete() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "services");
    press_until(
        &browser,
        key::TAB,
        "document.activeElement.getAttribute('aria-label') === 'What is this: Service'",
        30,
    );
    browser.press(key::ENTER);
    browser.wait_for("document.querySelector('#explanation').matches(':popover-open')");
    let text = browser.get("document.querySelector('#explanation').innerText");
    assert!(text.as_str().unwrap().contains("service-lb-controller"), "{text}");
    assert_eq!(browser.get("document.activeElement.id"), "explanation");
    browser.press(key::ESCAPE);
    browser.wait_for("!document.querySelector('#explanation').matches(':popover-open')");
    assert_eq!(browser.get("document.activeElement.className"), "what");
    let incomplete = "return import('/explain.js').then(({ EXPLANATIONS }) => Object.entries(EXPLANATIONS)
        .filter(([, entry]) => !(entry.title && entry.text.length > 30 && entry.by)).map(([name]) => name))";
    assert_eq!(browser.run(incomplete, &[]), json!([]));
    for controller in sample::small().controller.keys() {
        let script = "return import('/explain.js').then(({ EXPLANATIONS }) => Boolean(EXPLANATIONS[arguments[0]]))";
        assert_eq!(browser.run(script, &[json!(controller)]), true, "{controller}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_introduction_is_shown_until_it_is_dismissed() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    browser.wait_for_text("New here?");
    browser.click(".introduction button");
    browser.wait_for("!document.querySelector('.introduction')");
    browser.reload();
    browser.wait_for_text("Needs attention");
    assert_eq!(browser.get("document.querySelector('.introduction')"), Value::Null);
}

/// What the accessibility tree lacks: elements that the user can operate and that have no name, duplicate IDs, and landmarks.
const LACKS: &str = r"
    const lacks = [];
    for (const [name, selector] of Object.entries({ banner: 'header', navigation: 'nav[aria-label]', main: 'main', status: '[role=status]' }))
        if (document.querySelectorAll(selector).length === 0) lacks.push(`landmark ${name}`);
    const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
    for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) lacks.push(`id ${id} is not unique`);
    for (const element of document.querySelectorAll('[aria-labelledby], [aria-controls]'))
        for (const name of ['aria-labelledby', 'aria-controls'])
            if (element.hasAttribute(name) && !document.getElementById(element.getAttribute(name)) && element.checkVisibility()) lacks.push(`${name} ${element.getAttribute(name)}`);
    if (document.querySelectorAll('h1').length !== 1) lacks.push(`${document.querySelectorAll('h1').length} h1`);
    if (!document.documentElement.lang) lacks.push('lang');
    for (const svg of document.querySelectorAll('svg'))
        if (svg.getAttribute('aria-hidden') !== 'true' && !svg.getAttribute('aria-label')) lacks.push('svg without a label');
    return lacks;";

#[tokio::test(flavor = "multi_thread")]
async fn everything_has_a_role_and_a_name() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    for view in VIEWS.iter().chain(DETAILS) {
        go(&browser, &format!("#/{view}"));
        assert_eq!(browser.run(LACKS, &[]), json!([]), "{view}");
        let tree = browser.devtools("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().unwrap();
        let operable = [
            "button",
            "link",
            "searchbox",
            "combobox",
            "switch",
            "grid",
            "table",
            "progressbar",
            "figure",
            "img",
            "dialog",
            "columnheader",
        ];
        let mut count = 0;
        for node in nodes.iter().filter(|node| node["ignored"] == json!(false)) {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            if operable.contains(&role) && role != "figure" {
                count += 1;
                let name = node["name"]["value"].as_str().unwrap_or_default();
                assert!(!name.trim().is_empty(), "{view}: a {role} without a name: {node}");
            }
        }
        assert!(count > 15, "{view} has {count} elements with a name");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_has_a_shape_and_a_text_not_only_a_colour() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "nodes");
    let shapes = browser.get("[...new Set([...document.querySelectorAll('.row .level')].map((level) => level.className + ' ' + level.querySelector('svg').innerHTML))].length");
    assert_eq!(shapes, 4, "one shape for each of the four levels");
    assert_eq!(browser.get("[...document.querySelectorAll('.row .level')].every((level) => level.innerText || level.closest('.health').innerText)"), true);
}

/// Texts whose contrast with their background is lower than 4.5:1, or 3:1 if they are large.
const LOW_CONTRAST: &str = r"
    const parse = (color) => { const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number); return { r, g, b, a }; };
    const over = (top, below) => ({ r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1 });
    const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const luminance = ({ r, g, b }) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const background = (element) => {
        const layers = [];
        for (let each = element; each; each = each.parentElement) layers.push(parse(getComputedStyle(each).backgroundColor));
        return layers.reverse().reduce((below, layer) => over(layer, below), { r: 255, g: 255, b: 255, a: 1 });
    };
    const low = new Set();
    let checked = 0;
    for (const element of document.body.querySelectorAll('*')) {
        const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!hasText || !element.checkVisibility() || element.closest('.sr, [disabled], noscript, [data-dim]')) continue;
        checked += 1;
        const style = getComputedStyle(element);
        const below = background(element);
        const [bright, dark] = [luminance(over(parse(style.color), below)), luminance(below)].sort((a, b) => b - a);
        const ratio = (bright + 0.05) / (dark + 0.05);
        const size = parseFloat(style.fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        if (ratio < (isLarge ? 3 : 4.5)) low.add(`${ratio.toFixed(2)} ${element.tagName}.${element.className} ${element.innerText.slice(0, 40)}`);
    }
    return { checked, low: [...low] };";

#[tokio::test(flavor = "multi_thread")]
async fn texts_have_enough_contrast_in_both_colour_schemes() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    let mut backgrounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.set_media("prefers-color-scheme", scheme);
        backgrounds.push(browser.get("getComputedStyle(document.body).backgroundColor"));
        for view in VIEWS.iter().chain(DETAILS) {
            go(&browser, &format!("#/{view}"));
            let result = browser.run(LOW_CONTRAST, &[]);
            assert!(result["checked"].as_u64().unwrap() > 20, "{view}: {result}");
            assert_eq!(result["low"], json!([]), "{view}, {scheme}");
        }
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_moves_for_users_who_prefer_that() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    open(&browser, &page, "overview");
    assert!(browser.get("document.getAnimations().length").as_u64().unwrap() > 0, "something moves otherwise");
    browser.set_media("prefers-reduced-motion", "reduce");
    browser.wait_for("document.getAnimations().length === 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_fits_into_a_phone() {
    let Some(browser) = Browser::start() else { return };
    let page = Page::serve(sample::small());
    browser.resize(360, 740);
    open(&browser, &page, "overview");
    for view in VIEWS.iter().chain(DETAILS) {
        go(&browser, &format!("#/{view}"));
        let width = browser
            .get("Math.max(document.documentElement.scrollWidth, document.querySelector('#details').scrollWidth)");
        assert!(width.as_u64().unwrap() <= 360, "{view} is {width} wide");
    }
    go(&browser, "#/overview");
    assert_eq!(browser.get("document.querySelector('#nav a').checkVisibility()"), false);
    browser.click(".menu");
    browser.wait_for("document.querySelector('#nav a').checkVisibility()");
    browser.click("#nav a[href='#/services']");
    browser.wait_for_text("4 entries");
    browser.click(".row-link");
    browser.wait_for("!document.querySelector('#details').hidden");
    let small = browser.get("[...document.querySelectorAll('button')].filter((button) => button.checkVisibility() && !button.matches('.what') && button.getBoundingClientRect().height < 24).length");
    assert_eq!(small, 0, "buttons are large enough for fingers");
}
