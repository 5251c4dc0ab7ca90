//! Snapshots of JSON and YAML.

use expect_test::expect;

use super::check;
use crate::cli::OutputFormat;
use crate::render::terminal::Terminal;

#[test]
fn json() {
    check(
        OutputFormat::Json,
        false,
        &Terminal::PLAIN,
        &expect![[r#"
        {
          "nodes": [
            {
              "name": "default-1",
              "nodePool": "default",
              "instanceType": "small",
              "zone": "zone-b",
              "capacityType": "on-demand",
              "price": 0.05,
              "pods": [
                "default/web-2",
                "default/web-3"
              ],
              "instanceTypeOptions": [
                "small",
                "large",
                "accelerated"
              ],
              "requests": {
                "cpu": "1800m",
                "memory": "2Gi",
                "pods": "2"
              },
              "allocatable": {
                "cpu": "2",
                "memory": "4Gi",
                "pods": "110"
              }
            },
            {
              "name": "default-2",
              "nodePool": "default",
              "instanceType": "small",
              "zone": "zone-b",
              "capacityType": "on-demand",
              "price": 0.05,
              "pods": [
                "default/web-4",
                "default/web-5"
              ],
              "instanceTypeOptions": [
                "small",
                "large",
                "accelerated"
              ],
              "requests": {
                "cpu": "1800m",
                "memory": "2Gi",
                "pods": "2"
              },
              "allocatable": {
                "cpu": "2",
                "memory": "4Gi",
                "pods": "110"
              }
            },
            {
              "name": "default-3",
              "nodePool": "default",
              "instanceType": "small",
              "zone": "zone-b",
              "capacityType": "on-demand",
              "price": 0.05,
              "pods": [
                "default/web-6",
                "default/web-7"
              ],
              "instanceTypeOptions": [
                "small",
                "large",
                "accelerated"
              ],
              "requests": {
                "cpu": "1800m",
                "memory": "2Gi",
                "pods": "2"
              },
              "allocatable": {
                "cpu": "2",
                "memory": "4Gi",
                "pods": "110"
              }
            },
            {
              "name": "default-4",
              "nodePool": "default",
              "instanceType": "accelerated",
              "zone": "zone-b",
              "capacityType": "on-demand",
              "price": 1.0,
              "pods": [
                "default/web-8",
                "default/train-0"
              ],
              "instanceTypeOptions": [
                "accelerated"
              ],
              "requests": {
                "cpu": "4900m",
                "memory": "9Gi",
                "nvidia.com/gpu": "1",
                "pods": "2"
              },
              "allocatable": {
                "cpu": "8",
                "memory": "32Gi",
                "nvidia.com/gpu": "1",
                "pods": "110"
              }
            }
          ],
          "existing": [
            {
              "node": "ip-10-0-0-1",
              "pods": [
                "default/web-0",
                "default/web-1"
              ]
            }
          ],
          "unschedulable": [
            {
              "pod": "default/huge-0",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-1",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-2",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-3",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-4",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-5",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-6",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-7",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-8",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-9",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-10",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            },
            {
              "pod": "default/huge-11",
              "reasons": [
                {
                  "scope": "1 existing node",
                  "reason": "NotEnoughRoom",
                  "message": "not enough free resources"
                },
                {
                  "scope": "nodepool gpu",
                  "reason": "Taint",
                  "message": "did not tolerate taint gpu:NoSchedule"
                },
                {
                  "scope": "nodepool default",
                  "reason": "TooLarge",
                  "message": "no instance type has enough resources: cpu 64 wanted, at most 8 free"
                }
              ]
            }
          ],
          "cost": {
            "hourly": 1.15,
            "monthly": 839.5,
            "lowerBound": 1.1,
            "gapPercent": 4.545,
            "compatHourly": 1.4
          },
          "stats": {
            "pods": 22,
            "classes": 3,
            "nodes": 4,
            "timings": {
              "readMs": 0.0,
              "assembleMs": 0.0,
              "scheduleMs": 1.5,
              "validateMs": 0.0,
              "totalMs": 1.5
            }
          }
        }
    "#]],
    );
}

#[test]
fn yaml() {
    check(
        OutputFormat::Yaml,
        false,
        &Terminal::PLAIN,
        &expect![[r#"
        nodes:
        - name: default-1
          nodePool: default
          instanceType: small
          zone: zone-b
          capacityType: on-demand
          price: 0.05
          pods:
          - default/web-2
          - default/web-3
          instanceTypeOptions:
          - small
          - large
          - accelerated
          requests:
            cpu: 1800m
            memory: 2Gi
            pods: "2"
          allocatable:
            cpu: "2"
            memory: 4Gi
            pods: "110"
        - name: default-2
          nodePool: default
          instanceType: small
          zone: zone-b
          capacityType: on-demand
          price: 0.05
          pods:
          - default/web-4
          - default/web-5
          instanceTypeOptions:
          - small
          - large
          - accelerated
          requests:
            cpu: 1800m
            memory: 2Gi
            pods: "2"
          allocatable:
            cpu: "2"
            memory: 4Gi
            pods: "110"
        - name: default-3
          nodePool: default
          instanceType: small
          zone: zone-b
          capacityType: on-demand
          price: 0.05
          pods:
          - default/web-6
          - default/web-7
          instanceTypeOptions:
          - small
          - large
          - accelerated
          requests:
            cpu: 1800m
            memory: 2Gi
            pods: "2"
          allocatable:
            cpu: "2"
            memory: 4Gi
            pods: "110"
        - name: default-4
          nodePool: default
          instanceType: accelerated
          zone: zone-b
          capacityType: on-demand
          price: 1.0
          pods:
          - default/web-8
          - default/train-0
          instanceTypeOptions:
          - accelerated
          requests:
            cpu: 4900m
            memory: 9Gi
            nvidia.com/gpu: "1"
            pods: "2"
          allocatable:
            cpu: "8"
            memory: 32Gi
            nvidia.com/gpu: "1"
            pods: "110"
        existing:
        - node: ip-10-0-0-1
          pods:
          - default/web-0
          - default/web-1
        unschedulable:
        - pod: default/huge-0
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-1
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-2
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-3
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-4
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-5
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-6
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-7
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-8
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-9
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-10
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        - pod: default/huge-11
          reasons:
          - scope: 1 existing node
            reason: NotEnoughRoom
            message: not enough free resources
          - scope: nodepool gpu
            reason: Taint
            message: did not tolerate taint gpu:NoSchedule
          - scope: nodepool default
            reason: TooLarge
            message: "no instance type has enough resources: cpu 64 wanted, at most 8 free"
        cost:
          hourly: 1.15
          monthly: 839.5
          lowerBound: 1.1
          gapPercent: 4.545
          compatHourly: 1.4
        stats:
          pods: 22
          classes: 3
          nodes: 4
          timings:
            readMs: 0.0
            assembleMs: 0.0
            scheduleMs: 1.5
            validateMs: 0.0
            totalMs: 1.5
    "#]],
    );
}
