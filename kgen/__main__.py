from kgen.cli import main

main(prog_name="kgen")
