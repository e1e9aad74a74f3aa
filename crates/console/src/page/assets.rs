//! Static files, built into the program.

/// A static file.
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: &'static str,
}

/// All files. The page requests nothing else, as its content security policy demands.
pub(super) const ASSETS: &[Asset] = &[
    Asset { path: "/", content_type: "text/html; charset=utf-8", body: include_str!("../../assets/index.html") },
    Asset {
        path: "/console.css",
        content_type: "text/css; charset=utf-8",
        body: include_str!("../../assets/console.css"),
    },
    Asset {
        path: "/console.js",
        content_type: "text/javascript; charset=utf-8",
        body: include_str!("../../assets/console.js"),
    },
];
