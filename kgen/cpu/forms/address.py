"""Addresses: generic ones are the host's pointers, as all but those in shared memory are already."""

TABLE = r"""
cvta{,.to}.{global,local,const,param}.{u32,u64} | $3 | $3 | a
cvta.to.shared{,::cta,::cluster}.{u32,u64}      | $2 | u64 | kg::to_shared(w, a)
cvta.shared{,::cta}.{u32,u64}                   | $2 | u32 | kg::from_shared<kg::SHARED>(w, a, l, SITE)
cvta.shared::cluster.{u32,u64}                  | $1 | u32 | kg::from_shared<kg::CLUSTER>(w, a, l, SITE)
isspacep.{global,local,const,param,shared}{,::cta,::cluster,::entry} | pred | u64 | kg::is_$1(w, a)
mapa.shared::cluster.{u32,u64}                  | $1 | u32 u32 | kg::map_shared(a, b)
mapa.{u32,u64} | $1 | u64 u32 | kg::from_shared<kg::CLUSTER>(w, kg::map_shared(kg::to_shared(w, a), b), l, SITE)
mbarrier.pending_count.b64                      | u32 | b64 | a & 0xfffff
getctarank{,.shared::cluster}.{u32,u64}         | u32 | u32 | kg::rank_of(w, a)
"""
