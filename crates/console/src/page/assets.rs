//! Static files, built into the program.

/// A static file.
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: &'static str,
}

/// Declares an asset whose path is the name of its file.
macro_rules! asset {
    ($file:literal, $content_type:expr) => {
        Asset {
            path: concat!("/", $file),
            content_type: $content_type,
            body: include_str!(concat!("../../assets/", $file)),
        }
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All files. The page requests nothing else, as its content security policy demands.
pub(super) const ASSETS: &[Asset] = &[
    Asset { path: "/", content_type: "text/html; charset=utf-8", body: include_str!("../../assets/index.html") },
    asset!("console.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    // The modules, each after those that it imports.
    asset!("format.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("explain.js", SCRIPT),
    asset!("route.js", SCRIPT),
    asset!("feed.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("parts.js", SCRIPT),
    asset!("attention.js", SCRIPT),
    asset!("overview.js", SCRIPT),
    asset!("grid.js", SCRIPT),
    asset!("lists.js", SCRIPT),
    asset!("now.js", SCRIPT),
    asset!("playground.js", SCRIPT),
    asset!("details.js", SCRIPT),
    asset!("console.js", SCRIPT),
];
