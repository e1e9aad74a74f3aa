//! What holds for all providers of the program.

use std::collections::BTreeSet;

use bowline_cloud::Surroundings;
use bowline_config::ConfigFile;

#[test]
fn what_a_template_gives_is_within_what_the_page_says() {
    for factory in bowline::registry().iter() {
        let config = ConfigFile::from_text("template", (factory.template)());
        let (cluster, surroundings) = ("kubernetes".into(), Surroundings::default());
        let provider = (factory.build)(&surroundings.context(Some(&config), &cluster)).ok().unwrap();
        let all = (factory.capabilities)();
        assert_eq!(provider.capabilities().beyond(&all), None, "{}", factory.name);
    }
}

#[test]
fn no_two_metrics_have_one_name() {
    let page = bowline_daemon::metric_reference(&bowline::registry());
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let names: BTreeSet<_> = rows.iter().filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(names.len(), rows.len(), "{page}");
}
