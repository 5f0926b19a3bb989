# bench/peer-random-tokens.sed - for llama-batched-bench of a peer, before it is built:
#
#     sed -i -f bench/peer-random-tokens.sed LLAMA/examples/batched-bench/batched-bench.cpp
#
# Some versions feed token 0 alone, so that a mixture reads the same few experts for every row and looks faster than it
# would with a text.  Versions that draw tokens already are left as they are.
s/common_batch_add(batch, 0, /common_batch_add(batch, std::rand() % llama_n_vocab(model), /
s/^#include <vector>/#include <cstdlib>\n#include <vector>/
