use karpenter_model::problem::Problem;

use crate::notes::Note;
use crate::testing::{POOL, pod_yaml, problem};

fn overlay(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

/// The prices of a type's offerings in the pool `general`.
fn prices(problem: &Problem, name: &str) -> Vec<f64> {
    let pool = problem.pools.iter().find(|pool| &*pool.name == "general").expect("the pool");
    let one = problem.catalogs[pool.catalog].iter().find(|one| &*one.name == name).expect("the type");
    one.offerings.iter().map(|offering| offering.price_per_hour).collect()
}

fn plan(overlays: &str) -> (Problem, Vec<Note>) {
    let other = POOL.replace("general", "other");
    problem(&format!("{POOL}---{other}{overlays}---\n{}", pod_yaml("p", "")))
}

#[test]
fn overlays_correct_the_catalog_of_the_pools_they_select() {
    let name = "c-4x-amd64-linux";
    let (plain, _) = plan("");
    let one = overlay(
        "cheap",
        "requirements: [{key: karpenter.sh/nodepool, operator: In, values: [general]}, \
         {key: node.kubernetes.io/instance-type, operator: In, values: [c-4x-amd64-linux]}], priceAdjustment: '-50%', \
         capacity: {example.com/dongle: 3}",
    );
    let (corrected, notes) = plan(&one);
    assert!(notes.is_empty(), "{notes:?}");
    let halves: Vec<f64> = prices(&plain, name).iter().map(|price| price / 2.0).collect();
    assert_eq!(prices(&corrected, name), halves);
    assert_eq!(prices(&corrected, "c-2x-amd64-linux"), prices(&plain, "c-2x-amd64-linux"));
    let [general, other] = &corrected.pools[..] else { panic!("two pools") };
    let dongles = |catalog: usize| {
        let one = corrected.catalogs[catalog].iter().find(|one| &*one.name == name);
        one.expect("the type").capacity.get("example.com/dongle")
    };
    let of = |pool: &str| if &*general.name == pool { general.catalog } else { other.catalog };
    assert_eq!((dongles(of("general")), dongles(of("other"))), (3, 0));
}

#[test]
fn conflicts_are_noted() {
    let both = overlay("a", "requirements: [], price: '1'") + &overlay("b", "requirements: [], price: '2'");
    let (corrected, notes) = plan(&both);
    assert_eq!(notes, [Note::NodeOverlaysConflicting { names: vec!["a".to_owned()] }]);
    assert!(prices(&corrected, "c-4x-amd64-linux").iter().all(|price| *price == 2.0));
}
