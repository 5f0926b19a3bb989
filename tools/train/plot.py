"""Loss curve of a run as a picture: plot.py runs/tiny/log.csv loss.png"""
import csv
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    rows = list(csv.DictReader(open(sys.argv[1])))
    # steps after the last checkpoint before a stop were done again
    rows = [r for i, r in enumerate(rows) if all(int(q["step"]) > int(r["step"]) for q in rows[i + 1:i + 200])]
    x = [int(r["tokens"]) / 1e6 for r in rows]
    fig, ax = plt.subplots(figsize=(8, 4.5))
    for key, label, colour in (("loss", "next token, assistant turns", "tab:blue"), ("mtp_loss", "token after next, MTP layer", "tab:orange")):
        y = [float(r[key]) for r in rows]
        if not any(y):
            continue
        for i in range(1, len(y)):
            y[i] = y[i] or y[i - 1]         # steps without the MTP layer
        s, smooth = y[0], []
        for v in y:
            s = 0.97 * s + 0.03 * v
            smooth.append(s)
        ax.plot(x, y, color=colour, alpha=0.15, linewidth=0.6)
        ax.plot(x, smooth, color=colour, label=label)
    ax.set_yscale("log")
    ax.set_xlabel("tokens seen, millions")
    ax.set_ylabel("cross entropy, nats")
    ax.grid(alpha=0.3)
    rate = ax.twinx()
    rate.plot(x, [float(r["rate"]) for r in rows], color="grey", linewidth=0.8, linestyle="--", label="learning rate (share of peak)")
    rate.set_ylim(0, 1.05)
    rate.set_ylabel("learning rate, share of peak")
    lines = ax.get_lines()[1::2] + rate.get_lines()
    ax.legend(lines, [line.get_label() for line in lines], loc="upper right")
    fig.tight_layout()
    fig.savefig(sys.argv[2], dpi=110)


main()
