//! The default NodePool for input without one, for example a single Deployment.

use karpenter_api::manifest;
use karpenter_state::Objects;

use crate::cli::CatalogChoice;
use crate::diagnostics;

const AWS: &str = include_str!("default_pool_aws.yaml");
const KWOK: &str = include_str!("default_pool_kwok.yaml");

pub(crate) fn add(objects: &mut Objects, provider: CatalogChoice) {
    let (text, described) = match provider {
        CatalogChoice::Aws => {
            (AWS, "on-demand linux nodes of the AWS categories c, m and r, generation 3 and later")
        }
        CatalogChoice::Kwok => (KWOK, "on-demand linux nodes of any type in the catalog"),
    };
    let defaults = Objects::from_documents(manifest::read("built-in NodePool", text).documents).objects;
    objects.node_pools.extend(defaults.node_pools);
    let has_class = !objects.ec2_node_classes.is_empty() || !objects.kwok_node_classes.is_empty();
    if !has_class {
        objects.ec2_node_classes.extend(defaults.ec2_node_classes);
        objects.kwok_node_classes.extend(defaults.kwok_node_classes);
    }
    diagnostics::print_note(&format!("the input has no NodePool, using a built-in one: {described}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_nodepools_are_valid() {
        for (text, kinds) in [(AWS, 2), (KWOK, 2)] {
            let manifests = manifest::read("built-in", text);
            assert_eq!(manifests.errors, []);
            assert_eq!(manifests.documents.len(), kinds);
            let reading = Objects::from_documents(manifests.documents);
            assert_eq!(reading.errors, []);
            assert_eq!(reading.objects.node_pools.len(), 1);
        }
    }
}
