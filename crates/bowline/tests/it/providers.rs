//! Properties of all providers of the program.

use std::collections::BTreeSet;

use bowline_cloud::BuildInputs;
use bowline_config::ConfigFile;

#[test]
fn a_provider_built_from_its_template_stays_within_the_documented_capabilities() {
    for factory in bowline::registry().iter() {
        let config = ConfigFile::from_text("template", (factory.template)());
        let (cluster, inputs) = ("kubernetes".into(), BuildInputs::default());
        let provider = (factory.build)(&inputs.context(Some(&config), &cluster)).ok().unwrap();
        let all = (factory.capabilities)();
        assert_eq!(provider.capabilities().exceeds(&all), None, "{}", factory.name);
    }
}

#[test]
fn metric_names_are_unique() {
    let page = bowline_daemon::metric_reference(&bowline::registry());
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let names: BTreeSet<_> = rows.iter().filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(names.len(), rows.len(), "{page}");
}
